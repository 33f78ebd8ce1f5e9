"""FedTTA's objective: the loss of the model after a step of its adaptation."""

from __future__ import annotations

from pydantic import NonNegativeFloat
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.errors import FedwcaError
from fedwca.functional import prediction_divergence, weighted_cross_entropy
from fedwca.objectives import register


@register("adapted")
class AdaptedCrossEntropy(Objective):
    """CE of the adapted outputs, plus mu · mean KL(outputs ‖ outputs of the received model) before the step.

    The gradient flows through the step, second derivatives included. With mu > 0 it is FedTTA-Prox.
    Source: FedTTA, eqs. 7 and 13.
    """

    label = "cross-entropy after adaptation"
    paper = "FedTTA eqs. 7, 13"
    adapts = True

    mu: NonNegativeFloat = 0.0
    """Weight of the divergence from the received model (FedTTA-Prox); 0 leaves it out."""
    reverse: bool = False
    """Whether the received model's outputs come first in the divergence, as in the released code."""

    @property
    def teachers(self) -> tuple[str, ...]:  # type: ignore[override]
        """The received model, if ``mu`` is above 0."""
        return ("start",) if self.mu else ()

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch."""
        if batch.adapted_logits is None:
            raise FedwcaError("objective 'adapted' was given no outputs after a step of an adaptation")
        loss = weighted_cross_entropy(batch.adapted_logits, batch.labels, batch.weights)
        if not self.mu:
            return loss
        return loss + self.mu * prediction_divergence(
            batch.logits, batch.reference_logits["start"], reverse=self.reverse
        )
