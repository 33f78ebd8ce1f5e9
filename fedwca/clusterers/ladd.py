"""LADD's clustering: K-means on the style of clients' images."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt
from torch import Tensor

from fedwca.clusterers import register
from fedwca.clusterers._kmeans import KMeansClusterer
from fedwca.core.messages import Signatures
from fedwca.functional import Metric


@register("ladd")
class LaddClusterer(KMeansClusterer):
    """Clients send the mean low-frequency amplitude of some images; K-means, the number of clusters by silhouette.

    The upload reveals something of images, not only of models; FedWCA calls that a privacy problem. The published range
    of cluster numbers starts at 4, which three domains cannot reach; ours starts at 2.
    Source: Shenaj et al., Learning Across Domains and Devices, WACV 2023, sec. 4; FedWCA App. C.2.
    """

    label = "LADD"
    paper = "Shenaj et al. 2023, sec. 4; FedWCA App. C.2, Table 13"

    share: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Frequencies on each side of the spectrum's centre, as a share of its shorter side (LADD's L)."""
    images: PositiveInt = 100
    """Images drawn from each client."""

    def __call__(self, signatures: Signatures) -> Tensor:
        """The best partition by silhouette ``[K]``."""
        return self.partition(signatures.styles(self.share, self.images))

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """The styles, by Euclidean distance."""
        return signatures.styles(self.share, self.images), "euclidean"

    @property
    def compares_models(self) -> bool:
        """False: styles are of images."""
        return False
