"""LADD's objective: cross-entropy on its own labels, and distillation from the source model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.functional import confident_mask, distillation, weighted_cross_entropy
from fedwca.objectives import register


@register("self_training")
class SelfTraining(Objective):
    """lam · CE on the labels that the labeler kept + distillation · KD from the source model's outputs.

    Both are means over all images of the batch: an image without a label counts as 0, as in LADD's code. KD is on
    images where the source model passes the gate of ``confidence`` and ``share``, the latter within the batch; that
    model reads the plain image, once per round.
    Source: Shenaj et al. (LADD), WACV 2023, sec. 4.
    """

    label = "self-training"
    paper = "Shenaj et al. 2023 (LADD), sec. 4"

    lam: NonNegativeFloat = 1.0
    """Weight of the cross-entropy; 0 leaves the distillation alone."""
    distillation: NonNegativeFloat = 1.0
    """Weight of the distillation from the source model; 0 switches it off."""
    alpha: PositiveFloat = 0.5
    """Factor of the source model's logits; below 1 its outputs are flatter."""
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Images are distilled where the source model's probability is above this."""
    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """They are also distilled where it is within this share of the most confident of its class in the batch."""

    @property
    def teachers(self) -> tuple[str, ...]:  # type: ignore[override]
        """The source model, if ``distillation`` is above 0."""
        return ("source",) if self.distillation else ()

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch."""
        labelled = weighted_cross_entropy(batch.target_logits, batch.labels, batch.weights) * batch.weights.mean()
        if not self.distillation:
            return self.lam * labelled
        source = batch.reference_logits["source"]
        confident = confident_mask(source.softmax(-1), self.confidence, self.share)
        return self.lam * labelled + self.distillation * distillation(batch.logits, source, self.alpha, confident)
