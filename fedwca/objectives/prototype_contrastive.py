"""FedPCL's objective: contrast with the class prototypes of all clients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Bounded, Predictions, Targets
from fedwca.functional import fill_prototypes, prototype_contrast, prototypes
from fedwca.objectives import register


@register("prototype_contrastive")
class PrototypeContrastive(Objective):
    """Mean over clients i of the contrast between a batch's unit features and the prototypes of client i.

    After training each client uploads the means of its unit features by label. The server fills in classes that a
    client lacks with the mean over the others, and sends all prototypes to all clients. In round 0 there are none, and
    the loss is 0.
    Source: Tan et al. (FedPCL), NeurIPS 2022, ConLoss of its code (which sums over clients); FedWCA sec. 5 and App. C.2
    (tau = 70).
    """

    label = "prototype contrast"
    paper = "Tan et al. 2022 (FedPCL), ConLoss of its code; FedWCA App. C.2"

    tau: PositiveFloat = 70.0
    """Temperature of the contrast; larger flattens it without shrinking gradients."""
    base_tau: PositiveFloat = 0.07
    """Divides the loss, so that tau / base_tau scales it."""

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch, over the images that have a label."""
        if "prototypes" not in batch.pooled_uploads:
            # A sum over no rows has a gradient, which is 0.
            return batch.features[:0].sum()
        features, client_prototypes = normalize(batch.features, dim=-1), batch.pooled_uploads["prototypes"]
        return prototype_contrast(features, batch.labels, client_prototypes, self.tau, self.base_tau, batch.weights > 0)

    def collect(self, predictions: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """``prototypes [M, q]`` of the trained model; a class without a labelled image has a zero row."""
        features = normalize(predictions.features, dim=-1)
        class_weights = one_hot(targets.labels, predictions.logits.shape[-1]) * targets.weights[:, None]
        return {"prototypes": prototypes(features, class_weights)}

    def upload_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """A mean of unit vectors is no longer than 1."""
        return {"prototypes": Bounded((classes, features), max_norm=1.0)}

    def pool(self, collected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """``prototypes [K, M, q]``, with missing classes filled in."""
        return {"prototypes": fill_prototypes(torch.as_tensor(collected["prototypes"]))}
