"""A client's model that is generated from its images, and how what generates it is trained."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.sgd import clip_together
from fedwca.engine.test_time_adaptation import AdaptedModel
from fedwca.functional import prediction_entropy


def generate_model(replica: Replica, adaptation: Adaptation, images: Tensor) -> Tensor:
    """The base network's parameters ``[P_base]`` from images uint8 ``[N, 3, H, W]``, by the bound row's networks."""
    return adaptation.generate(replica.extras, replica.network.prepare(images))


def train_generators(
    replica: Replica, adaptation: Adaptation, images: Tensor, begun: Tensor, rates: Mapping[str, float]
) -> None:
    """Move the bound row's generating networks towards generating the base network as training left it.

    One vector-Jacobian product of what they generate at ``begun - trained``: the gradient of half the squared distance
    of ``begun`` from the trained parameters. Source: pFedHN (Shamsian et al., ICML 2021).

    Args:
        replica: its row has the trained base network.
        adaptation: generates, and says how long the gradient of each network may be.
        images: that ``begun`` was generated from.
        begun: the base network's parameters before training ``[P_base]``.
        rates: learning rate of each network.
    """
    trained = replica.row[replica.layout.base]
    leaves = replica.train_extras()
    made = generate_model(replica, adaptation, images)
    every = [leaf for own in leaves.values() for leaf in own]
    found = iter(torch.autograd.grad(made, every, begun - trained, allow_unused=True, materialize_grads=True))
    with torch.no_grad():
        for name, own in leaves.items():
            gradients = [next(found) for _ in own]
            clip_together(gradients, adaptation.clip)
            torch._foreach_add_(own, gradients, alpha=-rates[name])


@torch.no_grad()
def generated_predictions(replica: Replica, adaptation: Adaptation, images: Tensor, row: Tensor) -> AdaptedModel:
    """A client's model, generated from the images that it predicts; as it was sent where there are none.

    Args:
        replica: runs it.
        adaptation: generates.
        images: uint8 ``[N, 3, H, W]``.
        row: what the client was sent ``[P]``; left as it is.
    """
    model = row.clone()
    replica.bind(model)
    if not len(images):
        return AdaptedModel.unmoved(model, len(replica.class_vectors))
    before = prediction_entropy(replica.predict(images).logits)
    model[replica.layout.base] = generate_model(replica, adaptation, images)
    logits = replica.predict(images).logits
    return AdaptedModel(model, logits, (float(before), float(prediction_entropy(logits))), 1)
