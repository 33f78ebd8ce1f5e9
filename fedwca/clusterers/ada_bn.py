"""FINCH on the inputs of the source model's BatchNorm at each client, before any training."""

from __future__ import annotations

from pydantic import NonNegativeInt
from torch import Tensor

from fedwca.clusterers import register
from fedwca.core.interfaces import Clusterer
from fedwca.core.messages import NormLayers, Signatures
from fedwca.functional import Metric, finch


@register("ada_bn")
class AdaBN(Clusterer):
    """Clients send, once, moments of the untouched source model's BatchNorm inputs; FINCH by Euclidean distance.

    These are 2q numbers for a bottleneck of q features, (mean - m_S) / sigma_S and log(sd / sigma_S), which do not
    depend on what clients train. They reveal something of images, not only of models.
    Source: ours; the statistics are those of AdaBN (Li et al., 2017), the grouping is Sarfraz et al., CVPR 2019.
    """

    label = "moments"
    paper = "not published; AdaBN (Li et al. 2017) and FINCH (Sarfraz et al. 2019)"

    layers: NormLayers = "bottleneck"
    """The bottleneck's BatchNorm, or all there are."""
    level: NonNegativeInt = 0
    """Partition of FINCH's hierarchy, 0 the finest; clamped to the coarsest there is."""

    def __call__(self, signatures: Signatures) -> Tensor:
        """FINCH's partition ``[K]``."""
        return finch(signatures.moments(self.layers), self.level, metric="euclidean")

    @property
    def norm_layers(self) -> NormLayers | None:
        """The configured layers."""
        return self.layers

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """The moments, by Euclidean distance."""
        return signatures.moments(self.layers), "euclidean"
