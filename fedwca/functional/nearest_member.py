"""The cluster of a client that joins after the clusters were made."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor
from torch.linalg import vector_norm

from fedwca.errors import UsageError
from fedwca.functional._nearest import Metric


def member_distances(x: Tensor, newcomer: Tensor, labels: Tensor, metric: Metric = "cosine") -> tuple[Tensor, Tensor]:
    """Find the member of each cluster that is nearest to a newcomer, from differences in float64.

    FINCH joins each client to its first neighbour, so a newcomer belongs where its first neighbour is. 1 - cos of
    nearly collinear vectors is half the squared difference of the normalised ones, which keeps its digits.

    Source: FedWCA, sec. 4.1 (kappa_k), for one more client.

    Args:
        x: ``[K, P]``, signatures of the clustered clients.
        newcomer: ``[P]``, the newcomer's signature.
        labels: ``[K]`` int64 in 0…C-1, cluster of each client.
        metric: ``cosine``: distances are 1 - cos; ``euclidean``: lengths of differences.

    Returns:
        Distances ``[C]`` float64, infinite for a cluster without members, and the nearest members ``[C]`` int64, the
        first of equals, -1 where there is none; both on the CPU.

    Raises:
        UsageError: shapes do not fit, a value is not finite, a vector is zero where ``metric`` is cosine, or there is
            no such metric.

    >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 9.0]])
    >>> member_distances(x, torch.tensor([0.0, 4.0]), torch.tensor([0, 1, 1]), metric="euclidean")
    (tensor([4., 3.], dtype=torch.float64), tensor([0, 1]))
    """
    if metric not in get_args(Metric):
        raise UsageError(f"no metric '{metric}'; there are {', '.join(get_args(Metric))}")
    if x.ndim != 2 or newcomer.shape != x.shape[1:] or labels.shape != x.shape[:1] or not len(x):
        raise UsageError(
            f"expected signatures [K, P], one more [P] and labels [K], got {list(x.shape)}, {list(newcomer.shape)} and "
            f"{list(labels.shape)}"
        )
    rows, labels = torch.cat([x, newcomer[None]]).double().cpu(), labels.cpu()
    if not bool(rows.isfinite().all()):
        raise UsageError("a signature has values that are not finite, so its distances are unknown")
    if metric == "cosine":
        length = vector_norm(rows, dim=1, keepdim=True)
        if not bool((length > 0).all()):
            raise UsageError("a signature is zero: it has no direction to compare")
        rows = rows / length
    lengths = vector_norm(rows[:-1] - rows[-1], dim=1)
    distances = lengths.square() / 2 if metric == "cosine" else lengths
    clusters = int(labels.max()) + 1
    in_cluster = labels == torch.arange(clusters)[:, None]
    best, member = torch.where(in_cluster, distances, torch.inf).min(1)
    return best, torch.where(best.isinf(), -1, member)
