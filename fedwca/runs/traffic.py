"""Bytes that go down to clients and up to the server in a round."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedwca.engine.interface import Engine
from fedwca.federated.method import Method
from fedwca.federated.round import Outcome


def bytes_down(outcome: Outcome, method: Method, engine: Engine, first: bool) -> int:
    """Bytes that all clients of a round receive: models, shared values, and the classifier in round 0."""
    values = 0
    if method.aggregator.travels or first:
        classifier = sum(p.numel() for p in engine.network.classifier.parameters()) if first else 0
        values = outcome.offer.models * engine.layout.width + classifier
    values += count_values(outcome.shared)
    return engine.bank.element_size() * len(outcome.uploads) * values


def bytes_up(outcome: Outcome, method: Method, engine: Engine) -> int:
    """Bytes that all clients of a round send: their models with reports on those they received, and extra values."""
    one = next(iter(outcome.uploads.values()))
    values = count_values(one.extras)
    if method.aggregator.travels:
        values += engine.layout.width + count_values(one.report)
    return engine.bank.element_size() * len(outcome.uploads) * values


def count_values(tensors: Mapping[str, Tensor]) -> int:
    """Values of all tensors together."""
    return sum(tensor.numel() for tensor in tensors.values())
