"""Prototype pseudo-labels for clients on which the source model is informative enough; others do not train."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import NonNegativeFloat, ValidationInfo, field_validator
from torch import Tensor

from fedwca.core.messages import Predictions, Targets
from fedwca.functional import mutual_information
from fedwca.pseudo_labelers import register
from fedwca.pseudo_labelers._prototype_labeler import PrototypeLabeler


@register("trusted")
class Trusted(PrototypeLabeler):
    """Labels of the start model by prototypes, at clients where the source model's outputs tell classes apart.

    A client is trusted where (H(mean p) - mean H(p)) / log M of the source model's outputs p on its images is at least
    ``least``. It cannot exceed H(mean p) / log M or log N / log M for N images. So where the model is surely right, a
    client of few classes may not be trusted, and one of very few images never is.
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
    untrusted: Literal["stop", "plain"] | NonNegativeFloat = "stop"
    """What a client does that is not trusted. stop: no training, BatchNorm's statistics are re-estimated on its images;
    plain: it trains towards its labels by half weights, which tell `strong_views` to take the loss of plain images
    alone (strong views stay in the batches of BatchNorm; `server_client_alignment` reads no weights, so there they stay
    in the loss); a number, below ``least``: plain where ``measure`` is at least that number, else stop."""

    untrained: Literal["source", "mean"] = "source"
    """Parameters of a group in which no client trains. source: the source model's, if clients start from their group's
    model, else those of the mixture that they start from; mean: after each round, the mean of the clients that are
    trusted most, wherever they are grouped, with the group's own BatchNorm statistics."""

    @field_validator("untrusted")
    @classmethod
    def _leaves_some_between(cls, untrusted: str | float, info: ValidationInfo) -> str | float:
        least = info.data.get("least")
        if isinstance(untrusted, float) and least is not None and untrusted >= least:
            raise ValueError(f"is not below least={least:g}, so nobody trains on plain images; right: less, or stop")
        return untrusted

    @property
    def untrained_take_mean(self) -> bool:
        """Whether ``untrained`` is mean."""
        return self.untrained == "mean"

    def trust(self, source: Predictions) -> Tensor:
        """1 where the measure reaches ``least``, else 1/2 for a client that trains, and 0 for one that does not."""
        measure, thresholds = self._measure(source), {"stop": math.inf, "plain": 0.0}
        plain_threshold = thresholds[self.untrusted] if isinstance(self.untrusted, str) else self.untrusted
        return torch.where(measure >= self.least, 1.0, 0.5 * (measure >= plain_threshold))

    def _measure(self, source: Predictions) -> Tensor:
        if self.measure == "confidence":
            return source.probabilities.double().amax(-1).mean()
        return mutual_information(source.logits.double())

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Targets with a label for every sample, at weight 1, unmixed."""
        start = predictions["start"]
        if self.labels == "predicted":
            return self.whole_targets(start, start.logits.argmax(-1))
        return self.whole_targets(start, self.nearest_prototypes(start)[0])
