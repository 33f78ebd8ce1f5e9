"""Generation of a client's model from its images, and training of the networks that generate it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.core.component_answers import describe_value
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.sgd import clip_together, separate_gradients
from fedwca.engine.test_time_adaptation import AdaptedModel
from fedwca.errors import FedwcaError
from fedwca.functional import prediction_entropy


def generate_model(replica: Replica, adaptation: Adaptation, images: Tensor) -> Tensor:
    """Generate the base network's parameters ``[P_base]`` from images uint8 ``[N, 3, H, W]``, with the bound row.

    Raises:
        FedwcaError: the adaptation generates something else.
    """
    generated: object = adaptation.generate(replica.extras, replica.network.prepare(images))
    expected = replica.row[replica.layout.base].shape
    if not isinstance(generated, Tensor) or generated.shape != expected:
        description = f"generate gave {describe_value(generated)}; right are parameters of shape {tuple(expected)}"
        raise FedwcaError(f"adaptation {adaptation.name!r}: {description}")
    return generated


def train_generators(
    replica: Replica, adaptation: Adaptation, images: Tensor, initial: Tensor, rates: Mapping[str, float], lr: float
) -> None:
    """Make one step of the bound row's generating networks towards the trained parameters of the base network.

    The gradient is one vector-Jacobian product of the generated parameters with ``initial - trained``: that of half the
    squared distance of ``initial`` from the trained parameters. Source: pFedHN (Shamsian et al., ICML 2021).

    Args:
        replica: its row has the trained base network.
        adaptation: generates parameters, and limits the gradient norm of each network.
        images: those that ``initial`` was generated from.
        initial: the generated parameters of the base network before training ``[P_base]``.
        rates: learning rate of each network, by name.
        lr: learning rate of the networks that have none there.
    """
    trained = replica.row[replica.layout.base]
    leaves = replica.train_extras()
    generated = generate_model(replica, adaptation, images)
    all_leaves = [leaf for network_leaves in leaves.values() for leaf in network_leaves]
    autograd_gradients = torch.autograd.grad(
        generated, all_leaves, initial - trained, allow_unused=True, materialize_grads=True
    )
    with torch.no_grad():
        all_gradients = iter(separate_gradients(autograd_gradients))
        for name, network_leaves in leaves.items():
            gradients = [next(all_gradients) for _ in network_leaves]
            clip_together(gradients, adaptation.clip)
            torch._foreach_add_(network_leaves, gradients, alpha=-rates.get(name, lr))


@torch.no_grad()
def generated_predictions(replica: Replica, adaptation: Adaptation, images: Tensor, row: Tensor) -> AdaptedModel:
    """A client's model, generated from the images that it predicts; without images it is the model that was sent.

    Args:
        replica: runs the model.
        adaptation: generates the model.
        images: uint8 ``[N, 3, H, W]``.
        row: the model that the client was sent ``[P]``; not changed.
    """
    model = row.clone()
    replica.bind(model)
    if not len(images):
        return AdaptedModel.unmoved(model, len(replica.class_vectors))
    entropy_before = prediction_entropy(replica.predict(images).logits)
    model[replica.layout.base] = generate_model(replica, adaptation, images)
    logits = replica.predict(images).logits
    return AdaptedModel(model, logits, (float(entropy_before), float(prediction_entropy(logits))), 1)
