"""Training of a batch of clients: all steps of a round, each one forward, one backward and one update of flat rows."""

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
"""Takes how many steps of each kind there are between two labellings, and gives what carries them out: called with a
step's kind, its values and the step as a function of these. Steps of one kind differ in their values alone."""
Relabel = Callable[[int, Tensor], dict[str, Any]]
"""An epoch and the models ``[G, P]`` as they then are, to the fields of a `StackedContext` that become others."""


def train(
    batch: TrialBatch, models: Tensor, context: StackedContext, relabel: Relabel, capture: Capture | None = None
) -> StackedContext:
    """Train ``models [G, P]`` in place for one round; what the last epoch was trained towards.

    Args:
        batch: whose models.
        models: where training starts; afterwards where it ended.
        context: what the first epoch is trained towards.
        relabel: makes labels anew before an epoch, where these are renewed.
        capture: what carries out steps; None: they are called one by one.
    """
    training, renews = batch.task.training, batch.task.labeler.renew == "epoch"
    momentum = torch.zeros_like(models[:, : batch.layout.trained])
    schedule, run = None, None
    # Where steps are counted, passes begin at another step of each client, and labels stay.
    for epoch in range(training.epochs if training.steps is None else 1):
        if renews and epoch:
            context = replace(context, **relabel(epoch, models))
        if schedule is None or renews:
            epochs = range(epoch, epoch + 1) if renews else range(training.epochs)
            # What is captured cannot depend on how many images are mixed.
            schedule = StepSchedule(batch, context.targets["mix"], epochs, counted=capture is None)
            run = capture(schedule.kinds) if capture else None
        for step in range(schedule.steps):
            for group in schedule.groups[step]:
                values = schedule.values(epoch, step, group)
                take = partial(train_step, batch, context, models, momentum, group, schedule.places(epoch, step, group))
                if run is None:
                    take(*values)
                else:
                    run(group, values, take)
    return context


def train_step(
    batch: TrialBatch,
    context: StackedContext,
    models: Tensor,
    momentum: Tensor,
    group: StepGroup,
    places: int,
    here: Tensor,
    number: Tensor,
) -> None:
    """One step of the clients of a group, with the places, draws and sums that `ClientWorker` has for each.

    Args:
        batch: all clients.
        context: what they are trained towards.
        models: theirs ``[G, P]``; those of the group change in place.
        momentum: of SGD ``[G, P]``; likewise.
        group: those that take the step.
        places: for mixed images, that each of them has.
        here: their images ``[g, B]``.
        number: steps that each of them has taken in this round ``[g]``.
    """
    rows, layout, training = slice(group.first, group.stop), batch.layout, batch.task.training
    trained = layout.positions(training.trains)
    leaf, parameters, statistics = split_leaves(layout, models[rows], trained)
    own, rest = models[rows], layout.trained
    whole = (
        leaf if training.trains == "all" else torch.cat([own[:, : trained.start], leaf, own[:, trained.stop : rest]], 1)
    )
    shown, mixed = _show_images(batch, context, rows, places, here, number)
    logits, features, fresh = batch.network(
        parameters,
        statistics,
        shown,
        training=training.trains != "classifier",
        phase=None if program.adapts(batch.task.objectives) else "train",  # as `ClientWorker` has it
        heads=None if batch.heads is None else batch.heads[rows],
    )
    # A client's loss depends on no other client's model, so the gradient of the sum is every client's own.
    after = _adapted_logits(batch, rows, parameters, statistics, shown, logits[:, : here.shape[1]])
    beside = _beside_outputs(batch, rows, parameters, number, here)
    losses = _losses(batch, context, rows, here, mixed, logits, features, after, beside)
    program.check_is_trained(losses, batch.task.objectives)
    losses = losses + _penalties(batch.task, whole, context, rows)
    gradient = torch.autograd.grad(losses.sum(), leaf)[0]
    descend(layout, models[rows], gradient, momentum[rows], trained, batch.task)
    for slot in layout.statistics:
        if slot.name in fresh:
            slot.of(models[rows]).copy_(fresh[slot.name])


def descend(layout: Layout, models: Tensor, gradient: Tensor, momentum: Tensor, trained: slice, task: Task) -> None:
    """Move models ``[g, P]`` and momenta in place: the base network and each extra one apart.

    Args:
        layout: of a row.
        models: views of the rows.
        gradient: of what is trained ``[g, …]``.
        momentum: of SGD ``[g, P]``, a view.
        trained: positions of what is trained.
        task: says how, and at which rates.
    """
    training = task.training
    base = slice(trained.start, min(trained.stop, layout.base.stop))
    parts: list[tuple[str | None, slice]] = [(None, base), *(layout.extras.items() if trained.stop > base.stop else ())]
    for name, part in parts:
        own = gradient[:, part.start - trained.start : part.stop - trained.start]
        if training.clip is not None:
            own = own * clip_factor(own.norm(dim=1, keepdim=True), training.clip)
        # A part of a row is one long parameter.
        moved = (models[:, part].unbind(), own.unbind(), momentum[:, part].unbind())
        sgd_step(*moved, training.of(name), None if name is None else task.rates.get(name))


def _adapted_logits(
    batch: TrialBatch,
    rows: slice,
    parameters: dict[str, Tensor],
    statistics: dict[str, Tensor],
    shown: StackedInput,
    plain: Tensor,
) -> Tensor | None:
    """Logits ``[g, B, M]`` of all that clients are shown, after one differentiable step of the adaptation on the plain
    images' logits; None where no objective reads them. The measured BatchNorm statistics of this pass are let go.
    """
    task = batch.task
    if not program.adapts(task.objectives):
        return None
    assert task.adaptation is not None
    base = {name: value for name, value in parameters.items() if not name.startswith(EXTRAS)}
    losses = batch.network.adaptation_losses(task.adaptation, parameters, plain)
    moved = parameters | step_parameters(losses, base, task.adaptation, task.inner_lr)
    heads = None if batch.heads is None else batch.heads[rows]
    found, _, _ = batch.network(moved, statistics, shown, training=True, heads=heads)
    return found


def _beside_outputs(
    batch: TrialBatch, rows: slice, parameters: dict[str, Tensor], number: Tensor, here: Tensor
) -> dict[str, Any]:
    """What objectives read beside outputs, as entries of a tree: extra networks' parameters, noise ``[g, B, n]``."""
    found: dict[str, Any] = {}
    if extras := batch.network.extra_parameters(parameters):
        found["networks"] = extras
    if count := program.noise_numbers(batch.task.objectives):
        draws = _step_draws(batch, rows, number)
        everyone = torch.arange(here.shape[1], device=here.device).expand(len(here), -1)
        noise = draws.noise(everyone, count)
        assert noise is not None
        found["noise"] = noise.to(parameters[batch.layout.parameters[0].name].dtype)
    return found


def _step_draws(batch: TrialBatch, rows: slice, number: Tensor) -> StepDraws:
    """What is drawn in a step of some clients."""
    task = batch.task
    keys = lambda purpose: batch.keys(purpose)[rows, None, None]  # noqa: E731
    return StepDraws(batch.network.network, keys, number[:, None], task.training.batch_size, task.training.trains)


@dataclass(frozen=True)
class _MixedPlaces:
    """Where g clients have mixed images in a step."""

    places: Tensor
    """Of the images that are mixed ``[g, m]``, those that are real first."""
    valid: Tensor
    """Which of these are real ``[g, m]``."""


def _show_images(
    batch: TrialBatch, context: StackedContext, rows: slice, places: int, here: Tensor, number: Tensor
) -> tuple[StackedInput, _MixedPlaces]:
    """What clients see in a step: plain images, mixed ones, strong views, in this order."""
    task, most, draws = batch.task, batch.task.training.batch_size, _step_draws(batch, rows, number)
    everyone = torch.arange(here.shape[1], device=here.device).expand(len(here), -1)
    network = batch.network.network
    inputs, positions, mixed = [], everyone, everyone[:, :0]

    def views(show: Callable[[Tensor, Tensor], Tensor], places: Tensor, positions: Tensor) -> Tensor:
        return torch.unflatten(show(batch.take(rows, places), positions), 0, places.shape)

    if not draws.plain:
        inputs.append(views(draws.weak, here, everyone))
    valid = all_real = torch.ones_like(here, dtype=torch.bool)
    real = [all_real]
    if places:
        targets = context.targets
        is_mixed = _of(targets["mix"], rows, here) > 0
        mixed = (~is_mixed).to(torch.uint8).argsort(dim=1, stable=True)[:, :places]
        valid, samples = is_mixed.gather(1, mixed), here.gather(1, mixed)
        partners = targets["partners"][rows].gather(1, samples).clamp_min(0)
        other = views(draws.weak, partners, most + mixed)
        share = targets["mix"][rows].gather(1, samples).to(other.dtype)
        if inputs:
            index = mixed.view(*mixed.shape, 1, 1, 1).expand(-1, -1, *other.shape[2:])
            own = inputs[0].gather(1, index)
        else:
            own = views(draws.weak, samples, mixed)
        inputs.append(torch.lerp(own, other, share.view(*share.shape, 1, 1, 1)))
        real.append(valid)
        positions = torch.cat([everyone, most + mixed], 1)
    strong = program.wants_strong_views(task.objectives)
    if strong:
        inputs.append(views(draws.strong, here, everyone))
        real.append(all_real)
    read = [batch.take_embedded(rows, here)] if draws.plain else []
    if inputs:
        x = torch.cat(inputs, 1)
        read.append(network.embed(x.flatten(0, 1)).unflatten(0, x.shape[:2]) if network.backbone.frozen else x)
    x = torch.cat(read, 1)
    masks = [mask.to(x.dtype) for mask in draws.masks(positions, everyone if strong else None)]
    shown = StackedInput(x, masks, torch.cat(real, 1) if places else None)
    return shown, _MixedPlaces(mixed, valid)


def _losses(
    batch: TrialBatch,
    context: StackedContext,
    rows: slice,
    here: Tensor,
    mixed: _MixedPlaces,
    logits: Tensor,
    features: Tensor,
    adapted: Tensor | None,
    more: Mapping[str, Any],
) -> Tensor:
    """What each client's step descends ``[g]``, without penalties."""
    objectives, targets, images, most = batch.task.objectives, context.targets, here.shape[1], mixed.places.shape[1]
    plain, other = logits[:, :images], logits[:, images + most :]

    def target_of(logits: Tensor) -> Tensor:
        plain = logits[:, :images]
        if not most:
            return plain
        index = mixed.places[..., None].expand(-1, -1, plain.shape[-1])
        blended = logits[:, images : images + most]
        return plain.scatter(1, index, torch.where(mixed.valid[..., None], blended, plain.gather(1, index)))

    shown, latent = batch.network.network.split_latent(features[:, :images])
    tree = {
        **more,
        **({} if latent is None else {"latent": latent}),
        **({} if adapted is None else {"adapted_logits": target_of(adapted)}),
        "logits": plain,
        "features": shown,
        "target_logits": target_of(logits),
        "labels": _of(targets["labels"], rows, here),
        "weights": _of(targets["weights"], rows, here).to(plain.dtype),
        "reference_logits": {name: _of(value, rows, here) for name, value in context.taught.items()},
        "view_logits": {
            "plain": plain,
            "weak": plain,
            **({"strong": other} if program.wants_strong_views(objectives) else {}),
        },
        "observed": {name: value[rows] for name, value in context.observed.items()},
    }
    if batch.several:
        tree["shared"] = {name: value[rows] for name, value in context.shared.items()}

    def loss(fields: dict[str, Any]) -> Tensor:
        fields = {"shared": context.shared, **fields}
        if "latent" in fields:
            fields["latent"] = Latent(*fields["latent"])
        if "networks" in fields:
            live = fields["networks"]
            fields["networks"] = batch.network.bind_extras(live)
            fields["frozen"] = batch.network.bind_extras(map_tree(torch.Tensor.detach, live))
        return program.batch_loss(objectives, Batch(**fields))

    losses: Tensor = vmap_or_loop("the objectives", loss, tree)
    return losses


def _penalties(task: Task, leaf: Tensor, context: StackedContext, rows: slice) -> Tensor:
    """The objectives' penalties on the models themselves ``[g]``, or a plain 0."""
    if not program.penalizing(task.objectives):
        return leaf[:0].sum()
    anchors = {name: value[rows] for name, value in context.anchors.items()}

    def penalty(own: dict[str, Any]) -> Tensor:
        found = program.penalty(task.objectives, own["leaf"], own["anchors"])
        return own["leaf"][:0].sum() if found is None else found

    found: Tensor = vmap_or_loop("the penalties", penalty, {"leaf": leaf, "anchors": anchors})
    return found


def _of(values: Tensor, rows: slice, here: Tensor) -> Tensor:
    """Values ``[G, N, …]`` of the images in a step ``[g, B, …]``."""
    values = values[rows]
    index = here.view(*here.shape, *(1,) * (values.ndim - 2))
    return values.gather(1, index.expand(*here.shape, *values.shape[2:]))
