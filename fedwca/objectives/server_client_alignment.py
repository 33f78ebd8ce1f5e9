"""FedSCAl's alignment: a strong view learns what the client and the server model say of the weak one."""

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

    A label counts where its probability reaches the client's threshold. Labels carry no gradient. The received model,
    frozen, labels the plain image once a round.
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
    """Least probability before it is adapted to the client's entropies."""
    lowest: Annotated[float, Field(le=0)] = -0.1
    """Least change of the threshold; 0 here and in ``highest`` keeps it fixed."""
    highest: Annotated[float, Field(ge=0)] = 0.15
    """Largest change of the threshold."""
    over: Literal["all", "counted"] = "all"
    """What a term is a mean over: all images of the batch, or those whose label counts, as in FedSCAl's code."""

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """The client's threshold ``[]``."""
        found = adaptive_threshold(predictions.probabilities, self.threshold, self.lowest, self.highest)
        return {"threshold": found}

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch."""
        own = self._aligned(batch, batch.view_logits["weak"].detach())
        return self.client * own + self.server * self._aligned(batch, batch.reference_logits["start"])

    def _aligned(self, batch: Batch, teacher: Tensor) -> Tensor:
        probability, labels = teacher.softmax(-1).max(-1)
        sure = (probability >= batch.observed["threshold"]).to(teacher.dtype)
        mean = weighted_cross_entropy(batch.view_logits["strong"], labels, sure)
        return mean if self.over == "counted" else mean * sure.mean()
