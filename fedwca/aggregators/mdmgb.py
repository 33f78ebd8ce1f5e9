"""MDMGB: source models weighted by the similarity of their class centroids to the target's under the mean model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.aggregators import register
from fedwca.core.grouping import OneGroup
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Bounded, Predictions
from fedwca.functional import centroid_weights, class_centroids


@register("mdmgb")
class MDMGB(Aggregator):
    """Labelled clients are averaged twice: equally, then by the similarity of their class centroids under that mean.

    Source: SFDA, eqs. 5-13; the temperature, in this library's form, is of MDMGB+ (arXiv 2510.08150).
    """

    label = "MDMGB"
    paper = "SFDA with MDMGB, eqs. 5-13"
    grouping = OneGroup()
    queries_clients = True

    temperature: PositiveFloat | None = None
    """Temperature of a softmax over the mean cosines; unset: weights in proportion to cosine + 1, as published."""
    centroids: Literal["pseudo", "labels"] = "pseudo"
    """How sources find the classes of their images: as the target does (eq. 5 as written), or by their labels."""

    def answer(self, predictions: Predictions, labels: Tensor | None) -> Mapping[str, Tensor]:
        """Class centroids ``[M, q+1]`` of the images (eqs. 5-9)."""
        features, outputs = predictions.features, predictions.probabilities
        if labels is not None and self.centroids == "labels":
            one_hot_labels = one_hot(labels, outputs.shape[1]).to(outputs.dtype)
            return {"centroids": class_centroids(features, one_hot_labels, refine=0)}
        return {"centroids": class_centroids(features, outputs)}

    def answer_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """Centroids of features with a 1 appended; features have no bound."""
        return {"centroids": Bounded((classes, features + 1), math.inf)}

    def regather(self, answers: Mapping[str, Tensor], gather: Tensor, present: Tensor, unlabeled: Tensor) -> Tensor:
        """Weights of eqs. 10-13; with several clients without labels, by the mean of their similarities."""
        centroids = answers["centroids"]
        # Classes of several such clients are concatenated, since similarity is a mean over classes.
        target = centroids[unlabeled].flatten(0, 1)
        alpha = centroid_weights(centroids[present].repeat(1, int(unlabeled.sum()), 1), target, self.temperature)
        weights = torch.zeros_like(gather)
        weights[:, gather.shape[1] - len(present) :][:, present] = alpha.to(weights)
        return weights
