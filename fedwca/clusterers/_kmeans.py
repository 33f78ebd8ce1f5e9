"""The base class of K-means clusterers: the best number of clusters of a range, by silhouette."""

from __future__ import annotations

import warnings

import torch
from pydantic import NonNegativeInt, PositiveInt, model_validator
from torch import Tensor

from fedwca.core.interfaces import Clusterer


class KMeansClusterer(Clusterer):
    """K-means on rows that a subclass makes, with the number of clusters chosen by silhouette."""

    least: PositiveInt = 2
    """Fewest clusters tried; 1 counts as 2 where ``most`` is more, because one cluster has no silhouette."""
    most: PositiveInt = 19
    """Most clusters tried, at most K - 1; the number of clusters where ``least`` is the same."""
    restarts: PositiveInt = 10
    """Restarts for each number of clusters."""
    seed: NonNegativeInt = 0
    """Random seed of K-means."""

    @model_validator(mode="after")
    def _is_a_range(self) -> KMeansClusterer:
        if self.most < self.least:
            raise ValueError(
                f"most, which is {self.most}, is below least, which is {self.least}; give most that or more"
            )
        return self

    def fewest_clusters(self, clients: int) -> int:
        """Fewest clusters of so many clients K, no two of which have equal rows."""
        return _count_range(self.least, self.most, clients, clients)[0]

    def partition(self, x: Tensor) -> Tensor:
        """Labels ``[K]`` of rows ``[K, P]``, see `best_kmeans`."""
        return best_kmeans(x, self.least, self.most, self.restarts, self.seed)


def best_kmeans(x: Tensor, least: int, most: int, restarts: int, seed: int) -> Tensor:
    """Labels ``[K]`` of the K-means partition of ``x [K, P]`` with the best mean silhouette; of equals the coarsest.

    The silhouette needs 2 to K-1 clusters; with fewer than three rows, or all rows equal, there is one cluster. Where
    ``least`` equals ``most`` nothing is compared: there are so many clusters, or as many as there are distinct rows.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import silhouette_score

    rows = x.double().cpu().numpy()
    distinct = len(torch.from_numpy(rows).unique(dim=0))
    cluster_counts = _count_range(least, most, len(rows), distinct)
    best_score, best_labels = -2.0, torch.zeros(len(rows), dtype=torch.int64)
    for clusters in cluster_counts:
        if clusters == 1:
            continue
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            labels = KMeans(clusters, n_init=restarts, random_state=seed).fit_predict(rows)
        score = silhouette_score(rows, labels) if len(cluster_counts) > 1 else 1.0
        if score > best_score:
            best_score, best_labels = float(score), torch.from_numpy(labels).long()
    return renumber_clusters(best_labels)


def _count_range(least: int, most: int, rows: int, distinct: int) -> range:
    """The numbers of clusters that are compared; 1 alone where rows are too few, or equal.

    If fewer clusters than ``least`` are possible, only the largest possible number is tried.
    """
    if least == most:
        return range(min(most, distinct), min(most, distinct) + 1)
    highest = min(most, rows - 1, distinct)
    return range(min(max(least, 2), max(highest, 2)), highest + 1) or range(1, 2)


def renumber_clusters(labels: Tensor) -> Tensor:
    """The same partition, with clusters numbered by first appearance.

    >>> renumber_clusters(torch.tensor([2, 0, 2, 1])).tolist()
    [0, 1, 0, 2]
    """
    order = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    return torch.tensor([order[label] for label in labels.tolist()], dtype=torch.int64)
