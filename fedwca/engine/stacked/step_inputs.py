"""What a batch of clients reads in a training step: plain images, mixed images and strong views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.engine import client_program as program
from fedwca.engine.augmentation import StepDraws
from fedwca.engine.stacked.client_batch import TrialBatch
from fedwca.engine.stacked.network import StackedInput
from fedwca.engine.stacked.targets import StackedContext


@dataclass(frozen=True)
class MixedPlaces:
    """Places of mixed images of g clients in a step."""

    places: Tensor
    """Places of the images that are mixed ``[g, m]``, those that are real first."""
    valid: Tensor
    """Which of these are real ``[g, m]``; the others are padding."""


def show_images(
    batch: TrialBatch, context: StackedContext, rows: slice, places: int, indices: Tensor, number: Tensor
) -> tuple[StackedInput, MixedPlaces]:
    """Inputs of clients in a step: plain images, mixed images and strong views, in this order."""
    task, batch_size, draws = batch.task, batch.task.training.batch_size, step_draws(batch, rows, number)
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
        is_mixed = values_in_step(targets["partner_weights"], rows, indices) > 0
        mixed = (~is_mixed).to(torch.uint8).argsort(dim=1, stable=True)[:, :places]
        valid, samples = is_mixed.gather(1, mixed), indices.gather(1, mixed)
        partners = targets["partners"][rows].gather(1, samples).where(valid, 0)
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
        x = join_images(inputs)
        parts.append(network.embed(x.flatten(0, 1)).unflatten(0, x.shape[:2]) if network.backbone.frozen else x)
    x = join_images(parts)
    masks = [mask.to(x.dtype) for mask in draws.masks(positions, all_places if strong else None)]
    step_inputs = StackedInput(x, masks, torch.cat(real, 1) if places else None)
    return step_inputs, MixedPlaces(mixed, valid)


def step_draws(batch: TrialBatch, rows: slice, number: Tensor) -> StepDraws:
    """Random draws of a step of the clients in ``rows``."""
    task = batch.task
    keys = lambda purpose: batch.keys(purpose)[rows, None, None]  # noqa: E731
    return StepDraws(batch.network.network, keys, number[:, None], task.training.batch_size, task.training.trains)


def join_images(parts: Sequence[Tensor]) -> Tensor:
    """Images ``[g, B, …]`` of several kinds one after another; those of a single kind are not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), 1)


def values_in_step(values: Tensor, rows: slice, indices: Tensor) -> Tensor:
    """Select from values ``[G, N, …]`` those of the images in a step ``[g, B, …]``."""
    values = values[rows]
    index = indices.view(*indices.shape, *(1,) * (values.ndim - 2))
    return values.gather(1, index.expand(*indices.shape, *values.shape[2:]))
