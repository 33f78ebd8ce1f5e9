"""The base class of labelers by feature prototypes."""

from __future__ import annotations

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Predictions, Targets
from fedwca.functional import prototype_labels


class PrototypeLabeler(PseudoLabeler):
    """A labeler by the nearest feature prototype."""

    refine: NonNegativeInt = 1
    """How often prototypes are recomputed from one-hot labels."""
    append_one: bool = False
    """Append a constant 1 to every feature first, as SHOT's code does."""
    normalize_first: bool = False
    """Average unit feature vectors instead of raw ones, as SHOT's code does."""
    min_count: NonNegativeInt = 0
    """Number of samples that must be predicted as a class for it to be assigned; 1 as in SHOT's code for objects, 0 for
    no such rule."""

    @property
    def mixes(self) -> bool:
        """False: images stay as they are."""
        return False

    def nearest_prototypes(self, predictions: Predictions) -> tuple[Tensor, Tensor, Tensor]:
        """Classes ``[N]`` of the nearest prototypes by cosine, similarities ``[N]`` to them, prototypes ``[M, q]``."""
        return prototype_labels(
            predictions.features,
            predictions.probabilities,
            refine=self.refine,
            append_one=self.append_one,
            normalize_first=self.normalize_first,
            min_count=self.min_count,
        )

    def whole_targets(self, predictions: Predictions, labels: Tensor) -> Targets:
        """Targets of labels ``[N]`` at weight 1, unmixed."""
        return Targets.of_labels(labels, torch.ones_like(predictions.features[:, 0]))
