"""Fake clients whose answers are computed from tables, so that an aggregator's results can be worked out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedwca.aggregators import aggregators
from fedwca.core.grouping import GroupingInput
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, Predictions, State

P = 7
"""Number of values in a fake model."""


@dataclass(frozen=True)
class FakeView:
    """A `View` of K clients: answers are smooth functions of the client's table and of the model asked for."""

    tables: Tensor
    """``[K, P]``, a client's "data"."""
    received: Tensor
    """``[K, Q+S, P]``, the models each client was sent."""
    personal: int

    @property
    def own(self) -> Tensor:
        return self.model(0)

    def model(self, column: int) -> Tensor:
        identity = torch.eye(self.received.shape[1], dtype=torch.float64)
        return identity[column : column + 1].expand(len(self.tables), -1)

    @property
    def shared(self) -> Tensor:
        return torch.eye(self.received.shape[1], dtype=torch.float64)[self.personal :]

    def alignment(self, mixtures: Tensor) -> Tensor:
        models = torch.einsum("ms,ksp->kmp", mixtures, self.received)
        return torch.cosine_similarity(models, self.tables[:, None], dim=-1)

    def density(self, mixtures: Tensor) -> Tensor:
        models = torch.einsum("ks,ksp->kp", mixtures, self.received)
        return 3 + (models * self.tables).sum(-1).sin()

    def loss(self, mixtures: Tensor, *_: Any, **__: Any) -> Tensor:
        models = torch.einsum("ms,ksp->kmp", mixtures, self.received)
        return (models - self.tables[:, None]).square().mean(-1)

    def only(self, client: int) -> FakeView:
        """The view of one client alone."""
        return replace(self, tables=self.tables[[client]], received=self.received[[client]])

    def take(self, order: Tensor) -> FakeView:
        """The view with the clients in another order."""
        return replace(self, tables=self.tables[order], received=self.received[order])


@dataclass(frozen=True)
class Case:
    """Two rounds of an aggregator on K fake clients, with all intermediate values."""

    aggregator: Aggregator
    labels: Tensor
    gathers: list[Tensor]
    rows: list[Tensor]
    offer: Offer
    view: FakeView
    blend: Blend
    states: list[State]


def labels_for(aggregator: Aggregator, clusters: Tensor) -> Tensor:
    """The clusters after round 0 ``[K]``."""
    choices: dict[int, int] = {}
    return aggregator.grouping.assign(GroupingInput(0, len(clusters), {}, choices, lambda: clusters, lambda: clusters))


def play(aggregator: Aggregator, clusters: Tensor, seed: int = 0, order: Tensor | None = None) -> Case:
    """Round 0 and round 1, as `fedwca.federated.round.run_round` does them, with random tables as models.

    Args:
        aggregator: the component.
        clusters: cluster of each client ``[K]``, for aggregators that do not put all clients in one group.
        seed: of the tables.
        order: an order in which to play the same clients.
    """
    k = len(clusters)
    draw = torch.Generator().manual_seed(seed)

    def random_rows() -> Tensor:
        values = torch.randn(k, P, dtype=torch.float64, generator=draw)
        return values if order is None else values[order]

    source = torch.randn(1, P, dtype=torch.float64, generator=draw)
    first, second, tables = random_rows(), random_rows(), random_rows()
    sizes = torch.arange(5, 5 + k)
    if order is not None:
        clusters, sizes = clusters[order], sizes[order]
    labels, present = labels_for(aggregator, clusters), torch.ones(k, dtype=torch.bool)
    moved = {"moved": torch.full((k,), 0.5, dtype=torch.float64)} if aggregator.infers_gradients else {}
    gathers = [aggregator.gather(moved, labels, sizes, present, 1)]
    rows = gathers[0] @ torch.cat([source, first])
    state = aggregator.next_state({}, labels, {}, present)
    offer = aggregator.offer(state, 1, rows)
    mixtures = torch.cat([offer.personal, offer.shared.expand(k, -1, -1)], 1)
    view = FakeView(tables, mixtures @ rows, offer.personal.shape[1])
    blend = aggregator.blend(1, view)
    chosen = labels if blend.labels is None else blend.labels
    gathers.append(aggregator.gather({**state, **moved}, chosen, sizes, present, len(rows)))
    after = gathers[1] @ torch.cat([rows, second])
    later = aggregator.next_state(state, chosen, blend.report, present)
    return Case(aggregator, chosen, gathers, [rows, after], offer, view, blend, [state, later])


def built() -> list[Aggregator]:
    """Every registered aggregator with its defaults."""
    return [aggregators.build(name) for name in aggregators.names()]


def predictions(seed: int, n: int, classes: int = 3, features: int = 4) -> Predictions:
    """A random model's predictions of n samples."""
    draw = torch.Generator().manual_seed(seed)
    return Predictions(
        2 * torch.randn(n, classes, generator=draw, dtype=torch.float64),
        torch.randn(n, features, generator=draw, dtype=torch.float64),
    )
