"""What the server does with a round's uploads: defences, means, clusters; values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedwca.core.grouping import GroupingInput
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.layout import Layout
from fedwca.engine.randomness import Keys, uniform
from fedwca.engine.signatures import BankSignatures
from fedwca.errors import UsageError
from fedwca.federated.clustering import check_labels
from fedwca.federated.round import Method, Server

Robust = Literal["mean", "median", "trimmed"]


class WeightSignatures(BankSignatures):
    """Signatures of clients whose images stay where they are."""

    def styles(self, share: float, images: int) -> Tensor:
        """Refused: image statistics would have to leave the clients."""
        raise UsageError("clusters by the style of clients' images, which do not leave them; take finch or kmeans")


def norm_outliers(moves: Mapping[int, float], factor: float | None) -> dict[int, float]:
    """Clients whose model moved more than ``factor`` times the median of this round, with their share of that bound.

    >>> norm_outliers({0: 1.0, 1: 1.0, 2: 12.0}, 3.0)
    {2: 4.0}
    """
    if factor is None or len(moves) < 3:
        return {}
    bound = factor * float(torch.tensor(list(moves.values()), dtype=torch.float64).median())
    return {client: moved / bound for client, moved in moves.items() if moved > bound}


def robust_mean(rows: Tensor, how: Robust, share: float = 0.25) -> Tensor:
    """A robust mean ``[N, P] -> [P]``: by coordinate the median, or the mean without the outer ``share`` on each side.

    >>> robust_mean(torch.tensor([[1.0], [2.0], [3.0], [90.0]]), "trimmed")
    tensor([2.5000])
    """
    ordered = rows.sort(0).values
    n = len(ordered)
    cut = (n - 1) // 2 if how == "median" else min(int(share * n), (n - 1) // 2)
    return ordered[cut : n - cut].mean(0)


def gather_models(
    weights: Tensor, rows: Tensor, bank: Tensor, layout: Layout, batch_norm: BatchNormPolicy, robust: Robust = "mean"
) -> Tensor:
    """Next server rows, as an engine's ``gather`` makes them; means of three clients or more are robust where asked."""
    kept, means = rows.shape[0], batch_norm.gather(weights, rows, bank, layout)
    if robust == "mean":
        return means
    for row, weight in enumerate(weights):
        members = weight[kept:] > 0
        if int(members.sum()) > 2 and not bool(weight[:kept].any()):
            means[row] = robust_mean(bank[members], robust)
    return means


def contributions(weights: Tensor, before: Tensor) -> Tensor:
    """Share of each client's last upload in each server row ``[C, K]``, from `gather`'s ``[C, R+K]`` and ``[R, K]``."""
    kept = before.shape[0]
    return weights[:, :kept] @ before + weights[:, kept:]


def is_single(shares: Tensor) -> Tensor:
    """Rows ``[..., K]`` made of a single client's upload: handing one on hands on that client's model."""
    return (shares > 1e-9).sum(-1) == 1


def cluster_uploads(
    round: int,
    server: Server,
    method: Method,
    layout: Layout,
    bank: Tensor,
    present: Tensor,
    choices: Mapping[int, int],
    keys: Keys,
) -> Tensor:
    """Cluster of each client ``[K]``, as `assign_clusters` finds it; a client not yet seen gets cluster 0."""
    clients = len(bank)

    def cluster() -> Tensor:
        assert method.clusterer is not None
        here, labels = bank[present], torch.zeros(clients, dtype=torch.int64)
        found = method.clusterer(WeightSignatures(here, layout, server.source)).cpu()
        labels[present] = check_labels(found, len(here), method.clusterer.name)
        return labels

    def deal() -> Tensor:
        return method.aggregator.first(clients, uniform(keys(0, -1, "partition"), torch.arange(clients)))

    given = GroupingInput(round, clients, server.state, choices, cluster, deal)
    return method.aggregator.grouping.assign(given)


def nearest_cluster(upload: Tensor, anchors: Tensor, source: Tensor, layout: Layout) -> int:
    """The cluster a late client joins: least angle between first-layer updates since the source model.

    Args:
        upload: its model after a round from the source model ``[P]``.
        anchors: the cluster means of round 0 ``[C, P]``.
        source: ``[P]``
        layout: where the first layer is.
    """
    first = torch.cat([torch.arange(slot.start, slot.stop) for slot in layout.layers()[0]])
    own, others = ((rows - source)[..., first].double() for rows in (upload, anchors))
    return int(torch.nn.functional.cosine_similarity(others, own[None], dim=1).argmax())
