"""Bytes that go down to clients and up to the server in a round."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedwca.engine.interface import Engine
from fedwca.federated.method import Method
from fedwca.federated.round import Outcome


def bytes_down(outcome: Outcome, method: Method, engine: Engine, first: bool) -> int:
    """Bytes that all clients of a round receive: models, shared values, and a frozen classifier in round 0; and the
    fresh mean, where they are asked what they say of it. Weights that nobody trained need not be sent.
    """
    values, frozen = 0, first and not engine.network.whole
    if method.aggregator.travels or frozen:
        classifier = sum(p.numel() for p in engine.network.classifier.parameters()) if frozen else 0
        known = 0 if first else method.aggregator.holds  # from earlier rounds
        kept = 0 if first else count_kept(method, engine)
        values = (outcome.offer.models - known) * (engine.layout.sent - kept) + classifier
    values += count_values(outcome.shared)
    judged = 0 if outcome.mean_answers is None else len(outcome.mean_answers.asked) * engine.layout.sent
    return engine.bank.element_size() * (len(outcome.uploads) * values + judged)


def bytes_up(outcome: Outcome, method: Method, engine: Engine) -> int:
    """Bytes that all clients of a round send: their models with reports on those they received, extra values, what they
    are grouped by, and what they say of the fresh mean.
    """
    one = next(iter(outcome.uploads.values()))
    values = count_values(one.collected) + outcome.signature
    if method.aggregator.travels:
        values += engine.layout.sent - count_kept(method, engine) + count_values(one.report)
    said = 0 if outcome.mean_answers is None else len(outcome.mean_answers.asked) * outcome.mean_answers.values
    return engine.bank.element_size() * (len(outcome.uploads) * values + said)


def count_kept(method: Method, engine: Engine) -> int:
    """Values of a model that stay with its client."""
    if not method.aggregator.keeps:
        return 0
    own = engine.layout.last_layers(method.aggregator.keeps)
    return sum(part.stop - part.start for part in (own, *engine.layout.statistics_of(own)))


def count_values(tensors: Mapping[str, Tensor]) -> int:
    """Values of all tensors together."""
    return sum(tensor.numel() for tensor in tensors.values())
