"""Prototype pseudo-labels from one model (SHOT, eq. 4 of FedWCA)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Predictions, Targets
from fedwca.functional import prototype_labels
from fedwca.pseudo_labelers import register


@register("prototype")
class Prototype(PseudoLabeler):
    """The class whose feature prototype is nearest by cosine; prototypes first soft, then from the labels themselves.

    Source: Liang et al. (SHOT), ICML 2020; FedWCA eq. 4.
    """

    label = "prototypes"
    paper = "Liang et al. 2020; FedWCA eq. 4"

    refine: NonNegativeInt = 1
    """How often prototypes are recomputed from one-hot labels."""
    append_one: bool = False
    """Append a constant 1 to every feature first, as SHOT's code does."""
    normalize_first: bool = False
    """Average unit feature vectors instead of raw ones, as SHOT's code does."""
    min_count: NonNegativeInt = 0
    """Samples a class must be predicted for to be assigned; 1 as in SHOT's code for objects, 0 for no such rule."""

    @property
    def mixes(self) -> bool:
        """Images stay as they are."""
        return False

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor, mask: Tensor | None = None) -> Targets:
        """Every sample gets a label, at full weight, unmixed."""
        start = predictions["start"]
        labels, _, _ = prototype_labels(
            start.features,
            start.probabilities,
            mask,
            refine=self.refine,
            append_one=self.append_one,
            normalize_first=self.normalize_first,
            min_count=self.min_count,
        )
        ones = torch.ones_like(start.features[:, 0])
        partners = torch.arange(len(labels), device=labels.device)
        return Targets(labels, ones, partners, torch.zeros_like(ones), torch.ones_like(labels, dtype=torch.bool))
