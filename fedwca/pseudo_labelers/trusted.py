"""Prototype pseudo-labels for clients of which the source model says enough; others do not train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import NonNegativeFloat
from torch import Tensor

from fedwca.core.messages import Predictions, Targets
from fedwca.functional import mutual_information
from fedwca.pseudo_labelers import register
from fedwca.pseudo_labelers._prototype_labeler import PrototypeLabeler


@register("trusted")
class Trusted(PrototypeLabeler):
    """Labels of the start model by prototypes, at clients where the source model's outputs tell classes apart.

    A client is trusted where (H(mean p) - mean H(p)) / log M of the source model's outputs p on its images is at least
    ``least``. It cannot exceed H(labels) / log M, so a client of few classes may not be trusted whatever the model.
    Source: ours; labels are SHOT's (Liang et al., ICML 2020; FedWCA eq. 4).
    """

    label = "trusted prototypes"
    paper = "not published; FedWCA eq. 4"

    least: NonNegativeFloat = 0.5
    """Least value of ``measure`` at which a client is trusted; above 1 none is."""
    measure: Literal["information", "confidence"] = "information"
    """information: mutual information of the outputs, as a share of log M; confidence: mean of the largest output."""
    labels: Literal["prototypes", "predicted"] = "prototypes"
    """prototypes: eq. 4's; predicted: the class the start model predicts."""
    untrusted: Literal["stop", "plain"] = "stop"
    """What a client does that is not trusted. stop: no training, BatchNorm's statistics are re-estimated on its images;
    plain: it trains towards its labels on plain images alone (by half weights, which `strong_views` reads so)."""

    @property
    def untrusted_weight(self) -> float:
        """Half where untrusted clients train."""
        return 0.5 if self.untrusted == "plain" else 0.0

    def trusts(self, source: Predictions) -> Tensor:
        """Whether the measure reaches ``least``."""
        if self.measure == "confidence":
            return source.probabilities.double().amax(-1).mean() >= self.least
        return mutual_information(source.logits.double()) >= self.least

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor, mask: Tensor | None = None) -> Targets:
        """Every sample gets a label, at full weight, unmixed."""
        start = predictions["start"]
        if self.labels == "predicted":
            return self.whole_targets(start, start.logits.argmax(-1))
        return self.whole_targets(start, self.nearest_prototypes(start, mask))
