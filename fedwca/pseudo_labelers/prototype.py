"""Prototype pseudo-labels from one model (SHOT, eq. 4 of FedWCA)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedwca.core.messages import Predictions, Targets
from fedwca.pseudo_labelers import register
from fedwca.pseudo_labelers._prototype_labeler import PrototypeLabeler


@register("prototype")
class Prototype(PrototypeLabeler):
    """The class whose feature prototype is nearest by cosine; prototypes first soft, then from the labels themselves.

    Source: Liang et al. (SHOT), ICML 2020; FedWCA eq. 4.
    """

    label = "prototypes"
    paper = "Liang et al. 2020; FedWCA eq. 4"

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Targets with a label for every sample, at weight 1, unmixed."""
        start = predictions["start"]
        return self.whole_targets(start, self.nearest_prototypes(start)[0])
