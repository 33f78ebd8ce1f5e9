"""Cross-entropy on true or pseudo labels, with optional label smoothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.functional import smoothed_cross_entropy
from fedwca.objectives import register


@register("cross_entropy")
class CrossEntropy(Objective):
    """Weighted mean cross-entropy towards (1 - s)·one-hot + s/M over the labelled images of the mini-batch.

    Source: SFDA, eqs. 14-16, with s = 0.1; FedTTA, eq. 7, and FedAvg with labels, with s = 0.
    """

    label = "cross-entropy"
    paper = "SFDA eqs. 14-16"

    smoothing: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the label that is spread over all classes (s); 0 is the plain cross-entropy."""

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch."""
        return smoothed_cross_entropy(batch.target_logits, batch.labels, self.smoothing, batch.weights)
