"""What one client computes between two messages, as functions of its own tensors, whichever engine runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import get_args

import torch
from torch import Tensor

from fedwca.core.component_answers import ROUNDING, check_number, check_tensors, describe_value
from fedwca.core.interfaces import Objective, PseudoLabeler
from fedwca.core.messages import Batch, Blend, Predictions, Targets
from fedwca.core.objective import ImageView
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_device
from fedwca.errors import FedwcaError


def place_like(sent: Mapping[str, Tensor], models: Tensor) -> dict[str, Tensor]:
    """Values that the server sent, where and as models are."""
    return {name: to_device(value.to(models.dtype), models.device) for name, value in sent.items()}


def teacher_names(objectives: Sequence[Objective]) -> list[str]:
    """Models whose predictions of the plain images objectives compare with, in order."""
    return sorted({name for objective in objectives for name in objective.teachers})


def anchor_names(objectives: Sequence[Objective]) -> list[str]:
    """Models whose parameters penalties compare with, in order."""
    return sorted({name for objective in objectives for name in objective.anchors})


def observes(objectives: Sequence[Objective]) -> bool:
    """Whether any objective measures something of the model that training starts from."""
    return any(objective.observes for objective in objectives)


def collecting_objectives(objectives: Sequence[Objective]) -> list[Objective]:
    """Objectives that upload something beside the trained model."""
    return [objective for objective in objectives if objective.collects]


def wants_strong_views(objectives: Sequence[Objective]) -> bool:
    """Whether any objective reads strong views of a step's images."""
    return any("strong" in objective.views for objective in objectives)


def adapts(objectives: Sequence[Objective]) -> bool:
    """Whether any objective reads the outputs after a step of the method's adaptation."""
    return any(objective.adapts for objective in objectives)


def noise_numbers(objectives: Sequence[Objective]) -> int:
    """Uniform numbers of each image that objectives read."""
    return max((objective.noise for objective in objectives), default=0)


def label_models(task: Task, labelled: bool) -> list[str]:
    """Models whose predictions `make_targets` needs, in order; a client that has labels asks no labeler."""
    read = () if labelled else task.labeler.models
    return list(dict.fromkeys((*read, *(("start",) if observes(task.objectives) else ()))))


def named_mixture(name: str, blend: Blend, own: Tensor) -> Tensor:
    """The mixture ``[K, Q+S]`` that a labeler or an objective names; one that the blend does not set is the own."""
    return {**blend.references, "start": blend.start}.get(name, own)


def observe(objectives: Sequence[Objective], start: Predictions) -> dict[str, Tensor]:
    """What objectives measure of a client's start, by name."""
    found: dict[str, Tensor] = {}
    for objective in objectives:
        found |= check_tensors(objective.observe(start), f"objective {objective.name!r}: observe")
    return found


def make_targets(
    task: Task,
    predictions: Mapping[str, Predictions],
    draws: Tensor,
    labels: Tensor | None = None,
    trusted: Tensor | None = None,
) -> tuple[Targets, dict[str, Tensor]]:
    """Targets, a client's labels or what the labeler makes of predictions; and what objectives observe of the start.

    Args:
        task: what the client is to do.
        predictions: of the models that `label_models` names, on all of the client's images.
        draws: a uniform number for each image ``[N]``.
        labels: the client's own ``[N]``; None: it has none, and the labeler is asked.
        trusted: how far its labels are, 0 to 1, ``[]`` or ``[1]``; None: they are.
    """
    if labels is None:
        found = task.labeler({name: predictions[name] for name in task.labeler.models}, draws)
        targets = check_targets(found, len(draws), task.labeler.name)
        if trusted is not None:
            targets = replace(targets, weights=targets.weights * trusted.to(targets.weights))
    else:
        targets = Targets.of_labels(labels)
    return targets, observe(task.objectives, predictions["start"]) if observes(task.objectives) else {}


def check_targets(targets: Targets, images: int, name: str) -> Targets:
    """What a labeler gave, if it is a value for each of a client's images.

    Raises:
        FedwcaError: it is not.
    """
    if not isinstance(targets, Targets):
        raise FedwcaError(f"pseudo-labeler {name!r} gave {describe_value(targets)}; right are Targets")
    for field in ("labels", "weights", "partners", "mix", "matched"):
        value = getattr(targets, field)
        whole = field not in ("labels", "partners") or getattr(value, "dtype", None) == torch.int64
        if not isinstance(value, Tensor) or value.shape != (images,) or not whole:
            kind = "int64" if field in ("labels", "partners") else "numbers"
            shown = f"{field} {describe_value(value)}"
            raise FedwcaError(f"pseudo-labeler {name!r} gave {shown}; right are {kind} of shape ({images},)")
    return targets


def check_target_values(targets: Targets, classes: int, labeler: PseudoLabeler) -> None:
    """See that a labeler's values are what they stand for, on the CPU: elsewhere it would make everybody wait.

    Args:
        targets: ``[..., N]`` each, of clients with N images.
        classes: M.
        labeler: gave them.

    Raises:
        FedwcaError: they are not; says for how many images.
    """
    if targets.labels.device.type != "cpu":
        return
    images, mixed = targets.labels.shape[-1], targets.mix > 0
    wrong = {
        f"labels that are no class; right are 0 to {classes - 1}": (targets.labels < 0) | (targets.labels >= classes),
        "weights that are not from 0 to 1": ~((targets.weights >= 0) & (targets.weights <= 1 + ROUNDING)),
        "mix that is not from 0 to 1": ~((targets.mix >= 0) & (targets.mix <= 1 + ROUNDING)),
        f"partners that the client has not; right are 0 to {images - 1}": mixed
        & ((targets.partners < 0) | (targets.partners >= images)),
    }
    if not labeler.mixes:
        wrong["images to mix, and says by mixes = False that there are none"] = mixed
    if not bool(torch.stack(list(wrong.values())).any()):
        return
    what, where = next((what, where) for what, where in wrong.items() if bool(where.any()))
    raise FedwcaError(f"pseudo-labeler {labeler.name!r} gave {what} (for {int(where.sum())} of {where.numel()} images)")


def check_is_trained(loss: Tensor, objectives: Sequence[Objective]) -> None:
    """See that a loss depends on the model, or a penalty does.

    Raises:
        FedwcaError: nothing would be trained.
    """
    if not loss.requires_grad and not penalizing(objectives):
        names = ", ".join(repr(objective.name) for objective in objectives)
        raise FedwcaError(
            f"objective {names}: the loss does not depend on the model, so nothing would be trained; make it of "
            "batch.logits or batch.features, with torch and without detach"
        )


def measure_loss(objective: Objective, batch: Batch) -> Tensor:
    """An objective's value ``[]``, in nats.

    Raises:
        FedwcaError: it is no single number, but for example one for each image.
    """
    value: object = objective(batch)
    if isinstance(value, int | float):
        return torch.full((), value, dtype=batch.logits.dtype, device=batch.logits.device)
    return check_number(value, f"objective {objective.name!r}")


def loss_of_all(
    task: Task,
    found: Predictions,
    draws: Tensor,
    source: Mapping[str, Tensor],
    shared: Mapping[str, Tensor],
    labels: Tensor | None = None,
) -> Tensor:
    """The task's objectives over all of a client's images ``[]``, nats: with its labels, or those that the very model
    gives that predicted them.

    Args:
        task: what the client is to do.
        found: the model's predictions.
        draws: a uniform number for each image ``[N]``.
        source: logits ``[N, M]`` of the source model, if it teaches.
        shared: what the server shares of uploads.
        labels: the client's own ``[N]``; None: it has none.
    """
    targets, observed = make_targets(task, dict.fromkeys((*task.labeler.models, "start"), found), draws, labels)
    batch = Batch(
        logits=found.logits,
        features=found.features,
        target_logits=found.logits,
        labels=targets.labels,
        weights=targets.weights.to(found.logits.dtype),
        reference_logits=dict.fromkeys(teacher_names(task.objectives), found.logits) | dict(source),
        view_logits=dict.fromkeys(get_args(ImageView), found.logits),
        observed=observed,
        shared=shared,
        adapted_logits=found.logits if adapts(task.objectives) else None,
    )
    return torch.stack([measure_loss(objective, batch) for objective in task.objectives]).sum()


def batch_loss(objectives: Sequence[Objective], batch: Batch) -> Tensor:
    """What a training step descends ``[]``: the objectives added up, in nats."""
    return reduce(torch.add, [measure_loss(objective, batch) for objective in objectives])


def penalty(objectives: Sequence[Objective], parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor | None:
    """The objectives' penalties on the model itself ``[]``; None where there is none.

    Args:
        objectives: of the task.
        parameters: trained parameters ``[P]``.
        anchors: the same of the models that `anchor_names` names.

    Raises:
        FedwcaError: a penalty is no single number.
    """
    every = [(objective.name, objective.penalty(parameters, anchors)) for objective in penalizing(objectives)]
    found = [check_number(value, f"objective {name!r}: penalty") for name, value in every if value is not None]
    return torch.stack(found).sum() if found else None


def penalizing(objectives: Sequence[Objective]) -> list[Objective]:
    """Objectives that may have a penalty on the model itself."""
    return [objective for objective in objectives if objective.penalizes]


def collect(objectives: Sequence[Objective], trained: Predictions, targets: Targets) -> dict[str, Tensor]:
    """What a client uploads beside its trained model, by ``<objective>.<name>``."""
    found: dict[str, Tensor] = {}
    for objective in collecting_objectives(objectives):
        own = check_tensors(objective.collect(trained, targets), f"objective {objective.name!r}: collect")
        found |= {f"{objective.name}.{name}": value for name, value in own.items()}
    return found


class PassMemory:
    """Predictions of models that were asked for before; a question is a tensor of mixtures, the very object."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Tensor, Predictions]] = {}

    def recall(self, mixtures: Tensor, predict: Callable[[Tensor], Predictions]) -> Predictions:
        """What the mixtures' models predict; asking again for the same ones is free."""
        if id(mixtures) not in self._found:
            # The mixtures are kept beside their answer so that their id stays taken.
            self._found[id(mixtures)] = (mixtures, predict(mixtures))
        return self._found[id(mixtures)][1]

    def forget(self) -> None:
        """Let go of all of them."""
        self._found.clear()
