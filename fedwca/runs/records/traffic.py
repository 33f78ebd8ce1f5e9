"""Bytes sent to clients and to the server in a round."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedwca.engine.interface import Engine
from fedwca.federated.close_round import Outcome
from fedwca.federated.method import Method


def bytes_down(outcome: Outcome, method: Method, engine: Engine, first: bool) -> int:
    """Bytes that all clients of a round receive.

    These are models, shared values, a frozen classifier in round 0, and the new mean for clients that are asked to
    assess it. Weights that nobody trained are not sent.
    """
    values, frozen = 0, first and not engine.network.trains_classifier
    if method.aggregator.sends_models or frozen:
        classifier = sum(p.numel() for p in engine.network.classifier.parameters()) if frozen else 0
        held = 0 if first else method.aggregator.cached_models  # models that clients have from earlier rounds
        local = 0 if first else count_kept(method, engine)
        values = (outcome.offer.models_per_client - held) * (engine.layout.sent - local) + classifier
    values += count_values(outcome.shared)
    mean_values = 0 if outcome.mean_answers is None else len(outcome.mean_answers.asked) * engine.layout.sent
    return engine.bank.element_size() * (len(outcome.uploads) * values + mean_values)


def bytes_up(outcome: Outcome, method: Method, engine: Engine) -> int:
    """Bytes that all clients of a round send.

    These are their models with reports on the models they received, values that objectives collect, the signatures
    they are clustered by, and their answers about the new mean.
    """
    upload = next(iter(outcome.uploads.values()))
    values = count_values(upload.collected) + outcome.signature
    if method.aggregator.sends_models:
        values += engine.layout.sent - count_kept(method, engine) + count_values(upload.report)
    answer_values = 0 if outcome.mean_answers is None else len(outcome.mean_answers.asked) * outcome.mean_answers.values
    return engine.bank.element_size() * (len(outcome.uploads) * values + answer_values)


def count_kept(method: Method, engine: Engine) -> int:
    """Number of values of a model that are never sent to the server."""
    if not method.aggregator.local_layers:
        return 0
    local = engine.layout.last_layers(method.aggregator.local_layers)
    return sum(part.stop - part.start for part in (local, *engine.layout.statistics_of(local)))


def count_values(tensors: Mapping[str, Tensor]) -> int:
    """Total number of values of some tensors."""
    return sum(tensor.numel() for tensor in tensors.values())
