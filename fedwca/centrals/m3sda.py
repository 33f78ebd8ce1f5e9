"""M3SDA: distances between the moments of all domains' features as a loss."""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from fedwca.centrals import register
from fedwca.core.central import Central, DomainBatch
from fedwca.functional import moment_distance


@register("m3sda")
class M3sda(Central):
    """Cross-entropy + lam · distance of raw moments, of sources to the target and of sources to one another.

    One classifier, as in the plain form; the published variant with pairs of classifiers is not implemented.
    Source: Peng et al. (M3SDA), ICCV 2019, eqs. 1 and 2; SFDA, Table 1.
    """

    label = "M3SDA"
    paper = "Peng et al. 2019"

    lam: NonNegativeFloat = 5e-4
    """Weight of the distance beside the mean cross-entropy of the sources; the number of the public code, which has
    2,048 features and the sum over sources. With fewer features up to 0.05 is worth a try."""
    order: PositiveInt = 2
    """The highest moment."""

    def __call__(self, step: DomainBatch) -> Tensor:
        """The loss of one step."""
        distance = moment_distance(step.features, step.target_features, self.order)
        return step.cross_entropy() + self.lam * distance
