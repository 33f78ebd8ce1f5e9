"""K-means on model parameters."""

from __future__ import annotations

from torch import Tensor

from fedwca.clusterers import register
from fedwca.clusterers._kmeans import KMeansClusterer
from fedwca.clusterers._signature_clusterer import SignatureClusterer
from fedwca.core.messages import Signatures


@register("kmeans")
class KMeans(KMeansClusterer, SignatureClusterer):
    """K-means on the clients' signatures, the number of clusters by silhouette; set least = most for a given number."""

    label = "K-means"

    def __call__(self, signatures: Signatures) -> Tensor:
        """The best partition by silhouette ``[K]``."""
        x = self.read(signatures)
        # The rows are nearly equal; without their mean, distances keep their digits.
        return self.partition(x - x.mean(0))
