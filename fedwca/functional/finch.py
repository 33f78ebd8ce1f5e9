"""FINCH: clusters from first neighbours, without a number of clusters or a threshold."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._nearest import Backend, Metric
from fedwca.functional.neighbours import Precision, connected_components, first_neighbours
from fedwca.warn_caller import warn_caller


def finch(
    x: Tensor,
    level: int = 0,
    *,
    backend: Backend = "auto",
    precision: Precision = "float64",
    metric: Metric = "cosine",
) -> Tensor:
    """Cluster vectors by the chains of their first neighbours.

    Two limits follow from the method: every cluster has at least two members, so an outlier joins its nearest vector;
    and three vectors are always one cluster. Random vectors give clusters too: their number proves nothing.

    Source: FINCH (Sarfraz et al., CVPR 2019); FedWCA, sec. 4.1, uses level 0 on the first layer's weights.

    Args:
        x: ``[K, P]``.
        level: partition of the hierarchy; 0 is the finest. Beyond the last level, the last is given, with a warning.
        backend: how neighbours are searched, see `first_neighbours`.
        precision: see `first_neighbours`.
        metric: see `first_neighbours`.

    Returns:
        ``[K]`` int64, without gaps, numbered by first appearance.

    Raises:
        VectorError: a row is not finite, or is zero where ``metric`` is cosine; the sentence names the row.
        UsageError: ``x`` has no rows or columns, or not two axes, the level is negative, an option is unknown, or the
            process was forked and would use several threads.

    >>> finch(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]]))
    tensor([0, 1, 0, 1])
    """
    if level < 0:
        raise UsageError(f"the level must be at least 0, not {level}")
    reached = -1
    for labels in _partitions(x, backend, precision, metric):
        reached += 1
        if reached == level:
            return labels
    warn_caller(f"FINCH found no level {level}; the last one, {reached}, is used")
    return labels


def finch_levels(
    x: Tensor, *, backend: Backend = "auto", precision: Precision = "float64", metric: Metric = "cosine"
) -> list[Tensor]:
    """Compute all partitions of the hierarchy, finest first.

    Each further level clusters the mean vectors of the previous level's clusters, until one cluster is left. (The
    package finch-clust also forbids merges that are longer than the longest link of level 0, and drops a level that
    merges only one pair; here neither is done. Level 0 is the same.) With cosine, the hierarchy ends where a cluster's
    mean vector is zero.

    Source: FINCH (Sarfraz et al., CVPR 2019), Algorithm 1.

    Args:
        x: ``[K, P]``.
        backend: how neighbours are searched, see `first_neighbours`.
        precision: see `first_neighbours`.
        metric: see `first_neighbours`.

    Returns:
        At least one ``[K]`` int64, each without gaps and numbered by first appearance.

    Raises:
        VectorError: a row is not finite, or is zero where ``metric`` is cosine; the sentence names the row.
        UsageError: ``x`` has no rows or not two axes, an option is unknown, or the process was forked and would use
            several threads.

    >>> x = torch.tensor([0.0, 1.0, 10.0, 11.0, 100.0, 101.0, 110.0, 111.0])[:, None]
    >>> [labels.tolist() for labels in finch_levels(x, metric="euclidean")]
    [[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 0]]
    """
    return list(_partitions(x, backend, precision, metric))


def _partitions(x: Tensor, backend: Backend, precision: Precision, metric: Metric) -> Iterator[Tensor]:
    """Yield the partitions of the hierarchy, finest first, each computed on demand."""
    labels = connected_components(first_neighbours(x, backend=backend, precision=precision, metric=metric))
    yield labels
    clusters = int(labels.max()) + 1
    if clusters == 1:
        return
    x = (x.cpu() if x.device.type == "mps" else x).detach().double()
    device, sizes = labels.device, torch.ones_like(labels)
    labels = labels.to(x.device)
    sums, sizes = x, sizes.to(x.device)
    groups = labels
    while clusters > 1:
        sums = sums.new_zeros(clusters, x.shape[1]).index_add_(0, groups, sums)
        sizes = sizes.new_zeros(clusters).index_add_(0, groups, sizes)
        means = sums / sizes[:, None]
        if metric == "cosine" and not bool((means != 0).any(1).all()):
            return
        groups = connected_components(first_neighbours(means, backend=backend, precision=precision, metric=metric))
        labels, clusters = groups[labels], int(groups.max()) + 1
        yield labels.to(device)
