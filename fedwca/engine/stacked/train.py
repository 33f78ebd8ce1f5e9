"""Training of a batch of clients in a round; a step is one forward pass, one backward pass and one update of rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedwca.core.messages import Batch, Latent
from fedwca.engine import client_program as program
from fedwca.engine.augmentation import StepDraws
from fedwca.engine.client_task import Task
from fedwca.engine.differentiable_step import step_parameters
from fedwca.engine.parameter_layout import EXTRAS, Layout
from fedwca.engine.sgd import clip_factor, sgd_step
from fedwca.engine.stacked.client_batch import TrialBatch
from fedwca.engine.stacked.mini_batches import StepSchedule
from fedwca.engine.stacked.network import StackedInput
from fedwca.engine.stacked.split_leaves import split_leaves
from fedwca.engine.stacked.step_groups import StepGroup
from fedwca.engine.stacked.targets import StackedContext
from fedwca.engine.stacked.vmap import map_tree, vmap_or_loop

Capture = Callable[[Mapping[Hashable, int]], Callable[..., None]]
"""Takes the number of steps of each kind between two labellings and returns a function that runs one of them.

That function is called with the step's kind, its values, and the step as a function of these values. Steps of one kind
differ only in their values."""
Relabel = Callable[[int, Tensor], dict[str, Any]]
"""Takes an epoch and the models ``[G, P]`` at its start, and returns the fields of a `StackedContext` that change."""


def train(
    batch: TrialBatch, models: Tensor, context: StackedContext, relabel: Relabel, capture: Capture | None = None
) -> StackedContext:
    """Train ``models [G, P]`` in place for one round, and return the context of the last epoch.

    Args:
        batch: the clients of the models.
        models: to start from; afterwards the trained models.
        context: targets of the first epoch, and values to compare with.
        relabel: makes new labels before an epoch, if labels are renewed.
        capture: runs steps; None: they are called directly.
    """
    training, renews = batch.task.training, batch.task.labeler.renew == "epoch"
    momentum = torch.zeros_like(models[:, : batch.layout.trained])
    schedule, run = None, None
    # With `Training.steps`, clients begin passes at different steps, so labels are not renewed.
    for epoch in range(training.epochs if training.steps is None else 1):
        if renews and epoch:
            context = replace(context, **relabel(epoch, models))
        if schedule is None or renews:
            epochs = range(epoch, epoch + 1) if renews else range(training.epochs)
            # A captured step cannot depend on how many images are mixed.
            schedule = StepSchedule(batch, context.targets["partner_weights"], epochs, counted=capture is None)
            run = capture(schedule.kinds) if capture else None
        for step in range(schedule.steps):
            for group in schedule.groups[step]:
                values = schedule.values(epoch, step, group)
                call_step = partial(
                    train_step, batch, context, models, momentum, group, schedule.places(epoch, step, group)
                )
                if run is None:
                    call_step(*values)
                else:
                    run(group, values, call_step)
    return context


def train_step(
    batch: TrialBatch,
    context: StackedContext,
    models: Tensor,
    momentum: Tensor,
    group: StepGroup,
    places: int,
    indices: Tensor,
    number: Tensor,
) -> None:
    """One step of the clients of a group, with the same places, draws and sums as in `ClientWorker` for each of them.

    Args:
        batch: all clients.
        context: their targets, and values to compare with.
        models: of all clients ``[G, P]``; those of the group change in place.
        momentum: of SGD ``[G, P]``; likewise.
        group: the clients that take the step.
        places: number of places for mixed images of each of them.
        indices: of their images ``[g, B]``.
        number: steps that each of them has taken in this round ``[g]``.
    """
    rows, layout, training = slice(group.first, group.stop), batch.layout, batch.task.training
    trained = layout.positions(training.trains)
    leaf, parameters, statistics = split_leaves(layout, models[rows], trained)
    group_models, trained_count = models[rows], layout.trained
    all_trained = (
        leaf
        if training.trains == "all"
        else torch.cat([group_models[:, : trained.start], leaf, group_models[:, trained.stop : trained_count]], 1)
    )
    inputs, mixed = _show_images(batch, context, rows, places, indices, number)
    logits, features, new_statistics = batch.network(
        parameters,
        statistics,
        inputs,
        training=training.trains != "classifier",
        phase=None if program.adapts(batch.task.objectives) else "train",  # as in `ClientWorker`
        heads=None if batch.heads is None else batch.heads[rows],
    )
    # A client's loss depends on no other client's model, so the gradient of the sum is that of each client.
    adapted = _adapted_logits(batch, rows, parameters, statistics, inputs, logits[:, : indices.shape[1]])
    extra_fields = _beside_outputs(batch, rows, parameters, number, indices)
    losses = _losses(batch, context, rows, indices, mixed, logits, features, adapted, extra_fields)
    program.check_is_trained(losses, batch.task.objectives)
    losses = losses + _penalties(batch.task, all_trained, context, rows)
    gradient = torch.autograd.grad(losses.sum(), leaf)[0]
    descend(layout, models[rows], gradient, momentum[rows], trained, batch.task)
    for slot in layout.statistics:
        if slot.name in new_statistics:
            slot.of(models[rows]).copy_(new_statistics[slot.name])


def descend(layout: Layout, models: Tensor, gradient: Tensor, momentum: Tensor, trained: slice, task: Task) -> None:
    """Update models ``[g, P]`` and momenta in place, separately for the base network and each extra network.

    Args:
        layout: of a row.
        models: views of the rows.
        gradient: of the trained positions ``[g, …]``.
        momentum: of SGD ``[g, P]``, a view.
        trained: positions that are trained.
        task: gives training settings and learning rates.
    """
    training = task.training
    base = slice(trained.start, min(trained.stop, layout.base.stop))
    parts: list[tuple[str | None, slice]] = [(None, base), *(layout.extras.items() if trained.stop > base.stop else ())]
    for name, part in parts:
        part_gradient = gradient[:, part.start - trained.start : part.stop - trained.start]
        if training.clip is not None:
            part_gradient = part_gradient * clip_factor(part_gradient.norm(dim=1, keepdim=True), training.clip)
        # Each part of a row is one flat parameter.
        arguments = (models[:, part].unbind(), part_gradient.unbind(), momentum[:, part].unbind())
        sgd_step(*arguments, training.of(name), None if name is None else task.learning_rates.get(name))


def _adapted_logits(
    batch: TrialBatch,
    rows: slice,
    parameters: dict[str, Tensor],
    statistics: dict[str, Tensor],
    inputs: StackedInput,
    plain: Tensor,
) -> Tensor | None:
    """Logits ``[g, B, M]`` of a step's inputs after one differentiable adaptation step on the plain images' logits.

    None if no objective reads them. The new BatchNorm statistics of this pass are discarded.
    """
    task = batch.task
    if not program.adapts(task.objectives):
        return None
    assert task.adaptation is not None
    base = {name: value for name, value in parameters.items() if not name.startswith(EXTRAS)}
    losses = batch.network.adaptation_losses(task.adaptation, parameters, plain)
    adapted = parameters | step_parameters(losses, base, task.adaptation, task.inner_lr)
    heads = None if batch.heads is None else batch.heads[rows]
    logits, _, _ = batch.network(adapted, statistics, inputs, training=True, heads=heads)
    return logits


def _beside_outputs(
    batch: TrialBatch, rows: slice, parameters: dict[str, Tensor], number: Tensor, indices: Tensor
) -> dict[str, Any]:
    """What objectives read besides outputs, as entries of a tree: extra networks' parameters, noise ``[g, B, n]``."""
    entries: dict[str, Any] = {}
    if extras := batch.network.extra_parameters(parameters):
        entries["networks"] = extras
    if count := program.noise_numbers(batch.task.objectives):
        draws = _step_draws(batch, rows, number)
        all_places = torch.arange(indices.shape[1], device=indices.device).expand(len(indices), -1)
        noise = draws.noise(all_places, count)
        assert noise is not None
        entries["noise"] = noise.to(parameters[batch.layout.parameters[0].name].dtype)
    return entries


def _step_draws(batch: TrialBatch, rows: slice, number: Tensor) -> StepDraws:
    """Random draws of a step of the clients in ``rows``."""
    task = batch.task
    keys = lambda purpose: batch.keys(purpose)[rows, None, None]  # noqa: E731
    return StepDraws(batch.network.network, keys, number[:, None], task.training.batch_size, task.training.trains)


@dataclass(frozen=True)
class _MixedPlaces:
    """Places of mixed images of g clients in a step."""

    places: Tensor
    """Places of the images that are mixed ``[g, m]``, those that are real first."""
    valid: Tensor
    """Which of these are real ``[g, m]``; the others are padding."""


def _show_images(
    batch: TrialBatch, context: StackedContext, rows: slice, places: int, indices: Tensor, number: Tensor
) -> tuple[StackedInput, _MixedPlaces]:
    """Inputs of clients in a step: plain images, mixed images and strong views, in this order."""
    task, batch_size, draws = batch.task, batch.task.training.batch_size, _step_draws(batch, rows, number)
    all_places = torch.arange(indices.shape[1], device=indices.device).expand(len(indices), -1)
    network = batch.network.network
    inputs, positions, mixed = [], all_places, all_places[:, :0]

    def views(show: Callable[[Tensor, Tensor], Tensor], places: Tensor, positions: Tensor) -> Tensor:
        return torch.unflatten(show(batch.take(rows, places), positions), 0, places.shape)

    if not draws.plain:
        inputs.append(views(draws.weak, indices, all_places))
    valid = all_real = torch.ones_like(indices, dtype=torch.bool)
    real = [all_real]
    if places:
        targets = context.targets
        is_mixed = _of(targets["partner_weights"], rows, indices) > 0
        mixed = (~is_mixed).to(torch.uint8).argsort(dim=1, stable=True)[:, :places]
        valid, samples = is_mixed.gather(1, mixed), indices.gather(1, mixed)
        partners = targets["partners"][rows].gather(1, samples).clamp_min(0)
        partner_views = views(draws.weak, partners, batch_size + mixed)
        mix = targets["partner_weights"][rows].gather(1, samples).to(partner_views.dtype)
        if inputs:
            index = mixed.view(*mixed.shape, 1, 1, 1).expand(-1, -1, *partner_views.shape[2:])
            originals = inputs[0].gather(1, index)
        else:
            originals = views(draws.weak, samples, mixed)
        inputs.append(torch.lerp(originals, partner_views, mix.view(*mix.shape, 1, 1, 1)))
        real.append(valid)
        positions = torch.cat([all_places, batch_size + mixed], 1)
    strong = program.wants_strong_views(task.objectives)
    if strong:
        inputs.append(views(draws.strong, indices, all_places))
        real.append(all_real)
    parts = [batch.take_embedded(rows, indices)] if draws.plain else []
    if inputs:
        x = torch.cat(inputs, 1)
        parts.append(network.embed(x.flatten(0, 1)).unflatten(0, x.shape[:2]) if network.backbone.frozen else x)
    x = torch.cat(parts, 1)
    masks = [mask.to(x.dtype) for mask in draws.masks(positions, all_places if strong else None)]
    step_inputs = StackedInput(x, masks, torch.cat(real, 1) if places else None)
    return step_inputs, _MixedPlaces(mixed, valid)


def _losses(
    batch: TrialBatch,
    context: StackedContext,
    rows: slice,
    indices: Tensor,
    mixed: _MixedPlaces,
    logits: Tensor,
    features: Tensor,
    adapted: Tensor | None,
    extra_fields: Mapping[str, Any],
) -> Tensor:
    """Loss of each client's step ``[g]``, without penalties."""
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
        "labels": _of(targets["labels"], rows, indices),
        "weights": _of(targets["weights"], rows, indices).to(plain.dtype),
        "reference_logits": {name: _of(value, rows, indices) for name, value in context.taught.items()},
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

    losses: Tensor = vmap_or_loop(f"the loss of {program.names_of(objectives)}", loss, tree)
    return losses


def _penalties(task: Task, leaf: Tensor, context: StackedContext, rows: slice) -> Tensor:
    """The objectives' penalties on the models themselves ``[g]``, or 0 ``[]`` if there are none."""
    if not program.penalizing(task.objectives):
        return leaf[:0].sum()
    anchors = {name: value[rows] for name, value in context.anchors.items()}

    def penalty(tree: dict[str, Any]) -> Tensor:
        value = program.penalty(task.objectives, tree["leaf"], tree["anchors"])
        return tree["leaf"][:0].sum() if value is None else value

    description = f"the penalty of {program.names_of(program.penalizing(task.objectives))}"
    penalties: Tensor = vmap_or_loop(description, penalty, {"leaf": leaf, "anchors": anchors})
    return penalties


def _of(values: Tensor, rows: slice, indices: Tensor) -> Tensor:
    """Select from values ``[G, N, …]`` those of the images in a step ``[g, B, …]``."""
    values = values[rows]
    index = indices.view(*indices.shape, *(1,) * (values.ndim - 2))
    return values.gather(1, index.expand(*indices.shape, *values.shape[2:]))
