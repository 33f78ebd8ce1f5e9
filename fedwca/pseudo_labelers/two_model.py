"""Two-model pseudo-labels with mixup (FedWCA Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedwca.core.messages import Predictions, Targets
from fedwca.functional import mixup_partners, prototype_similarity, select_labels
from fedwca.pseudo_labelers import register
from fedwca.pseudo_labelers._prototype_labeler import PrototypeLabeler


@register("two_model")
class TwoModel(PrototypeLabeler):
    """Labels by the start and the cluster model, of which the closer one wins; where they differ, the image is mixed.

    Source: FedWCA, sec. 4.3, Algorithm 2.
    """

    label = "two models + mixup"
    paper = "FedWCA sec. 4.3, Algorithm 2"
    models = ("start", "cluster")

    mu: Annotated[float, Field(ge=0, le=1)] = 0.55
    """Weight of the matched partner's image in a mixed one; 0 leaves images alone, and ``fallback`` still applies."""
    selection: Literal["margin", "ratio"] = "margin"
    """How similarities d of two feature spaces are compared: as (d - p)/(1 - p), or as the paper's d / p, which prefers
    the worse label when the mean prototype similarity p is negative."""
    mixup: bool = True
    """Mix images whose two labels differ (MU of Table 5); off: they keep their image and their selected label."""
    fallback: Literal["drop", "keep", "any"] = "drop"
    """A mismatched sample without a matched one of its class: no label, its own image, or any matched image."""

    @property
    def mixes(self) -> bool:
        """True unless mixup is turned off."""
        return self.mixup and self.mu > 0

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Targets of Algorithm 2; with two equal models these are plain prototype labels."""
        start, cluster = predictions["start"], predictions["cluster"]
        start_labels, start_cosines, start_prototypes = self.nearest_prototypes(start)
        cluster_labels, cluster_cosines, cluster_prototypes = self.nearest_prototypes(cluster)
        p, q = prototype_similarity(start_prototypes), prototype_similarity(cluster_prototypes)
        labels = select_labels((start_labels, start_cosines), (cluster_labels, cluster_cosines), p, q, self.selection)
        divisors = torch.stack([p, q])
        notes = {"divisors": divisors if self.selection == "ratio" else 1 - divisors}
        matched = start_labels == cluster_labels
        ones = torch.ones_like(start_cosines)
        indices = torch.arange(len(labels), device=labels.device)
        if not self.mixup:
            return Targets(labels, ones, indices, torch.zeros_like(ones), matched, notes)
        classes = start.logits.shape[-1]
        partners = mixup_partners(labels, matched, draws, classes=classes)
        if self.fallback == "any":
            any_partner = mixup_partners(torch.zeros_like(labels), matched, draws, classes=1)
            partners = torch.where(partners < 0, any_partner, partners)
        usable = matched | (partners >= 0)
        weights = torch.where(usable, ones, 1.0 if self.fallback == "keep" else 0.0)
        mix = torch.where(~matched & usable, ones * self.mu, 0.0)
        return Targets(labels, weights, torch.where(mix > 0, partners, indices), mix, matched, notes)
