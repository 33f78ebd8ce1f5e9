"""Losses of a training step of a batch of clients, one value per client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedwca.core.messages import Batch, Latent
from fedwca.engine import client_program as program
from fedwca.engine.client_task import Task
from fedwca.engine.stacked.client_batch import TrialBatch
from fedwca.engine.stacked.step_inputs import MixedPlaces, values_in_step
from fedwca.engine.stacked.targets import StackedContext
from fedwca.engine.stacked.vmap import map_tree, vmap_or_loop


def client_losses(
    batch: TrialBatch,
    context: StackedContext,
    rows: slice,
    indices: Tensor,
    mixed: MixedPlaces,
    logits: Tensor,
    features: Tensor,
    adapted: Tensor | None,
    extra_fields: Mapping[str, Any],
) -> Tensor:
    """Loss of each client's step ``[g]``, without penalties.

    Raises:
        FedwcaError: a client's loss does not depend on its model, and there is no penalty.
    """
    objectives, targets, images, m = batch.task.objectives, context.targets, indices.shape[1], mixed.places.shape[1]
    plain, strong_logits = logits[:, :images], logits[:, images + m :]

    def target_of(logits: Tensor) -> Tensor:
        plain = logits[:, :images]
        if not m:
            return plain
        index = mixed.places[..., None].expand(-1, -1, plain.shape[-1])
        blended = logits[:, images : images + m]
        return plain.scatter(1, index, torch.where(mixed.valid[..., None], blended, plain.gather(1, index)))

    plain_features, latent = batch.network.network.split_latent(features[:, :images])
    tree = {
        **extra_fields,
        **({} if latent is None else {"latent": latent}),
        **({} if adapted is None else {"adapted_logits": target_of(adapted)}),
        "logits": plain,
        "features": plain_features,
        "target_logits": target_of(logits),
        "labels": values_in_step(targets["labels"], rows, indices),
        "weights": values_in_step(targets["weights"], rows, indices).to(plain.dtype),
        "reference_logits": {name: values_in_step(value, rows, indices) for name, value in context.taught.items()},
        "view_logits": {
            "plain": plain,
            "weak": plain,
            **({"strong": strong_logits} if program.wants_strong_views(objectives) else {}),
        },
        "observed": {name: value[rows] for name, value in context.observed.items()},
    }
    if batch.several:
        tree["pooled_uploads"] = {name: value[rows] for name, value in context.shared.items()}

    def loss(fields: dict[str, Any]) -> Tensor:
        fields = {"pooled_uploads": context.shared, **fields}
        if "latent" in fields:
            fields["latent"] = Latent(*fields["latent"])
        if "networks" in fields:
            parameters = fields["networks"]
            fields["networks"] = batch.network.bind_extras(parameters)
            fields["frozen_networks"] = batch.network.bind_extras(map_tree(torch.Tensor.detach, parameters))
        return program.batch_loss(objectives, Batch(**fields), (tree, context.shared))

    losses: Tensor = vmap_or_loop(
        f"the loss of {program.names_of(objectives)}",
        loss,
        tree,
        check=lambda losses: program.check_is_trained(losses, objectives),
    )
    return losses


def model_penalties(task: Task, leaf: Tensor, context: StackedContext, rows: slice) -> Tensor:
    """The objectives' penalties on the models themselves ``[g]``, or 0 ``[]`` if there are none."""
    if not program.penalizing(task.objectives):
        return leaf.new_zeros(())  # not a sum over no values of the leaf, whose gradient is as large as the leaf
    anchors = {name: value[rows] for name, value in context.anchors.items()}

    def penalty(tree: dict[str, Any]) -> Tensor:
        return program.penalty(task.objectives, tree["leaf"], tree["anchors"])

    description = f"the penalty of {program.names_of(program.penalizing(task.objectives))}"
    penalties: Tensor = vmap_or_loop(description, penalty, {"leaf": leaf, "anchors": anchors})
    return penalties
