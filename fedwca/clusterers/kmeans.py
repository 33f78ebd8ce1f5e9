"""K-means on model parameters."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from fedwca.clusterers import register
from fedwca.clusterers._kmeans import best_kmeans
from fedwca.clusterers._signature_clusterer import SignatureClusterer
from fedwca.core.messages import Signatures


@register("kmeans")
class KMeans(SignatureClusterer):
    """K-means on the clients' signatures, the number of clusters by silhouette; set least = most for a given number."""

    label = "K-means"

    least: PositiveInt = 2
    """Fewest clusters tried."""
    most: PositiveInt = 19
    """Most clusters tried, at most K - 1; the number of clusters where ``least`` is the same."""
    restarts: PositiveInt = 10
    """Restarts for each number of clusters."""
    seed: NonNegativeInt = 0
    """Of K-means."""

    def __call__(self, signatures: Signatures) -> Tensor:
        """The best partition by silhouette ``[K]``."""
        x = self.read(signatures)
        # Nearly equal rows: without their mean, distances keep their digits.
        return best_kmeans(x - x.mean(0), self.least, self.most, self.restarts, self.seed)
