"""LADD's clustering: K-means on the style of clients' images."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from fedwca.clusterers import register
from fedwca.clusterers._kmeans import best_kmeans
from fedwca.core.interfaces import Clusterer
from fedwca.core.messages import Signatures
from fedwca.functional import Metric


@register("ladd")
class LaddClusterer(Clusterer):
    """Clients send the mean low-frequency amplitude of some images; K-means, the number of clusters by silhouette.

    What travels tells about images, not only about models: FedWCA names that a privacy problem. The published range
    begins at 4, which three domains cannot reach; ours begins at 2.
    Source: Shenaj et al., Learning Across Domains and Devices, WACV 2023, sec. 4; FedWCA App. C.2.
    """

    label = "LADD"
    paper = "Shenaj et al. 2023, sec. 4; FedWCA App. C.2, Table 13"

    share: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Frequencies on each side of the spectrum's centre, as a share of its shorter side (LADD's L)."""
    images: PositiveInt = 100
    """Images drawn from each client."""
    least: PositiveInt = 2
    """Fewest clusters tried."""
    most: PositiveInt = 19
    """Most clusters tried, at most K - 1."""
    restarts: PositiveInt = 10
    """K-means restarts for each number of clusters."""
    seed: NonNegativeInt = 0
    """Of K-means."""

    def __call__(self, signatures: Signatures) -> Tensor:
        """The best partition by silhouette ``[K]``."""
        styles = signatures.styles(self.share, self.images)
        return best_kmeans(styles, self.least, self.most, self.restarts, self.seed)

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """The styles, by the length of their differences."""
        return signatures.styles(self.share, self.images), "euclidean"
