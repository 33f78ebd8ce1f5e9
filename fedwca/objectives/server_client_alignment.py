"""FedSCAl's alignment: strong views learn the labels that the client's and the server's model give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Predictions
from fedwca.functional import adaptive_threshold, weighted_cross_entropy
from fedwca.objectives import register


@register("server_client_alignment")
class ServerClientAlignment(Objective):
    """client · CE(strong view, own label of the weak view) + server · CE(strong view, label by the received model).

    A label counts where its probability reaches the client's threshold, whatever weight the pseudo-label has. Labels
    carry no gradient. The received model, frozen, labels the plain image once per round.
    Source: FedSCAl (arXiv 2512.06738, WACV 2026), client and server alignment.
    """

    label = "server-client alignment"
    paper = "FedSCAl (WACV 2026)"
    teachers = ("start",)
    views = ("weak", "strong")

    client: NonNegativeFloat = 3.0
    """Weight of the client's own labels (lambda)."""
    server: NonNegativeFloat = 0.3
    """Weight of the received model's labels."""
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Threshold of the probability before it is adapted to the client's entropies."""
    lowest: Annotated[float, Field(le=0)] = -0.1
    """Smallest change of the threshold; 0 here and in ``highest`` keeps it fixed."""
    highest: Annotated[float, Field(ge=0)] = 0.15
    """Largest change of the threshold."""
    over: Literal["all", "counted"] = "all"
    """What a term is a mean over: all images of the batch, or those whose label counts, as in FedSCAl's code."""

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """The client's threshold ``[]``."""
        threshold = adaptive_threshold(predictions.probabilities, self.threshold, self.lowest, self.highest)
        return {"threshold": threshold}

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch."""
        client_loss = self._aligned(batch, batch.view_logits["weak"].detach())
        return self.client * client_loss + self.server * self._aligned(batch, batch.reference_logits["start"])

    def _aligned(self, batch: Batch, teacher: Tensor) -> Tensor:
        probability, labels = teacher.softmax(-1).max(-1)
        confident = (probability >= batch.observed["threshold"]).to(teacher.dtype)
        loss = weighted_cross_entropy(batch.view_logits["strong"], labels, confident)
        return loss if self.over == "counted" else loss * confident.mean()
