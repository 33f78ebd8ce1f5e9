"""HeteroFedTTA: models of any size learn from the mean of all clients' predictions on public images."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import NonNegativeFloat
from torch import Tensor

from fedwca.core.messages import Batch, Predictions, Targets
from fedwca.core.public_objective import PublicObjective
from fedwca.errors import FedwcaError
from fedwca.functional import paired_distillation, prediction_divergence
from fedwca.objectives import register


@register("digest")
class Digest(PublicObjective):
    """Distils the clients' mean adapted outputs into adapted outputs, and their mean plain outputs into plain ones.

    The gradient flows through the adaptation step. Clients upload both logits of all public images; the server sends
    their means over the clients that have uploaded.
    Source: FedTTA, eq. 14 and Algorithm 2 (HeteroFedTTA); Li and Wang (FedMD), 2019.
    """

    label = "distillation of predictions"
    paper = "FedTTA eq. 14 (HeteroFedTTA)"
    adapts = True

    lam: NonNegativeFloat = 0.8
    """Weight of the plain outputs (lambda); 0 leaves them out, and they do not travel."""
    reverse: bool = False
    """Whether the mean's outputs come first in the divergences, as in the released code."""

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch."""
        if batch.adapted_logits is None:
            raise FedwcaError("objective 'digest' was given no outputs after a step of an adaptation")
        teacher_logits = batch.reference_logits
        if not self.lam:
            return prediction_divergence(batch.adapted_logits, teacher_logits["adapted"], reverse=self.reverse)
        outputs = (batch.adapted_logits, batch.logits, teacher_logits["adapted"], teacher_logits["base"])
        return paired_distillation(*outputs, self.lam, reverse=self.reverse)

    def collect(self, predictions: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """``adapted [N, M]`` and ``base [N, M]``, logits of the N public images."""
        if predictions.adapted_logits is None:
            raise FedwcaError("objective 'digest' was given no predictions after a step of an adaptation")
        plain = {"base": predictions.logits} if self.lam else {}
        return {"adapted": predictions.adapted_logits, **plain}

    def pool(self, collected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Means ``[N, M]`` over the clients that have uploaded; the rows of other clients are 0 everywhere."""
        uploaded = (collected["adapted"] != 0).flatten(1).any(1)
        return {name: value[uploaded].mean(0) for name, value in collected.items()}
