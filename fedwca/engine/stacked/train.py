"""Training of a batch of clients in a round; a step is one forward pass, one backward pass and one update of rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedwca.engine import client_program as program
from fedwca.engine.client_task import Task
from fedwca.engine.differentiable_step import step_parameters
from fedwca.engine.parameter_layout import EXTRAS, Layout
from fedwca.engine.sgd import clip_factor, sgd_step
from fedwca.engine.stacked.client_batch import TrialBatch
from fedwca.engine.stacked.mini_batches import StepSchedule
from fedwca.engine.stacked.network import StackedInput
from fedwca.engine.stacked.split_leaves import split_leaves
from fedwca.engine.stacked.step_groups import StepGroup
from fedwca.engine.stacked.step_inputs import show_images, step_draws
from fedwca.engine.stacked.step_losses import client_losses, model_penalties
from fedwca.engine.stacked.targets import StackedContext

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
    inputs, mixed = show_images(batch, context, rows, places, indices, number)
    logits, features, new_statistics = batch.network(
        parameters,
        statistics,
        inputs,
        training=training.trains != "classifier",
        phase=None if program.adapts(batch.task.objectives) else "train",  # as in `ClientWorker`
        classifiers=None if batch.classifiers is None else batch.classifiers[rows],
    )
    # A client's loss depends on no other client's model, so the gradient of the sum is that of each client.
    adapted = _adapted_logits(batch, rows, parameters, statistics, inputs, logits[:, : indices.shape[1]])
    extra_fields = _beside_outputs(batch, rows, parameters, number, indices)
    losses = client_losses(batch, context, rows, indices, mixed, logits, features, adapted, extra_fields)
    losses = losses + model_penalties(batch.task, all_trained, context, rows)
    gradient = _gradient(losses, leaf)
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


def _gradient(losses: Tensor, leaf: Tensor) -> Tensor:
    """Gradient of the sum of the losses ``[g]``, of the shape of the leaf; zeros if they do not depend on it."""
    if not losses.requires_grad:
        return torch.zeros_like(leaf)
    # That of a sum of parameters would be one number with a stride of 0, which torch's fused SGD reads past its end.
    return torch.autograd.grad(losses.sum(), leaf, allow_unused=True, materialize_grads=True)[0].contiguous()


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
    classifiers = None if batch.classifiers is None else batch.classifiers[rows]
    logits, _, _ = batch.network(adapted, statistics, inputs, training=True, classifiers=classifiers)
    return logits


def _beside_outputs(
    batch: TrialBatch, rows: slice, parameters: dict[str, Tensor], number: Tensor, indices: Tensor
) -> dict[str, Any]:
    """What objectives read besides outputs, as entries of a tree: extra networks' parameters, noise ``[g, B, n]``."""
    entries: dict[str, Any] = {}
    if extras := batch.network.extra_parameters(parameters):
        entries["networks"] = extras
    if count := program.noise_numbers(batch.task.objectives):
        draws = step_draws(batch, rows, number)
        all_places = torch.arange(indices.shape[1], device=indices.device).expand(len(indices), -1)
        noise = draws.noise(all_places, count)
        assert noise is not None
        entries["noise"] = noise.to(parameters[batch.layout.parameters[0].name].dtype)
    return entries
