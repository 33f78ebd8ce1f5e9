"""The class a model predicts, where it is confident enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Predictions, Targets
from fedwca.functional import confident_mask
from fedwca.pseudo_labelers import register


@register("argmax")
class Argmax(PseudoLabeler):
    """The predicted class; kept above a confidence or among the most confident of its class. By default all are kept.

    Source: Shenaj et al. (LADD), WACV 2023 (0.9 and 0.66); without a gate, Table 5 of FedWCA without PP.
    """

    label = "argmax"
    paper = "Shenaj et al. 2023 (LADD); FedWCA Table 5"

    model: Literal["start", "cluster", "teacher", "source"] = "start"
    """The model that predicts."""
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A label is kept when its probability is above this."""
    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """It is also kept when it is within this share of the most confident labels of its class."""

    @property
    def models(self) -> tuple[str, ...]:  # type: ignore[override]
        """The model that predicts."""
        return (self.model,)

    @property
    def mixes(self) -> bool:
        """False: images stay as they are."""
        return False

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """The predicted class of every sample, at weight 1 where it is kept and 0 elsewhere, unmixed."""
        probabilities = predictions[self.model].probabilities
        labels = probabilities.argmax(-1)
        confident = confident_mask(probabilities, self.confidence, self.share)
        return Targets.of_labels(labels, confident.to(probabilities.dtype))
