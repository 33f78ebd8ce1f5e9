"""What one client computes between two messages, as functions of its own tensors that all engines use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import get_args

import torch
from torch import Tensor

from fedwca.core.component_answers import check_number, check_tensors, describe_value, join_named, only_reads
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Blend, Predictions, Targets
from fedwca.core.objective import ImageView
from fedwca.engine.check_targets import check_targets
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_device
from fedwca.errors import FedwcaError


def place_like(sent: Mapping[str, Tensor], models: Tensor) -> dict[str, Tensor]:
    """Values that the server sent, on the device of ``models``; numbers with fractions have their dtype."""
    return {
        name: to_device(value.to(models.dtype) if value.is_floating_point() else value, models.device)
        for name, value in sent.items()
    }


def teacher_names(objectives: Sequence[Objective]) -> list[str]:
    """Sorted names of the models whose predictions of the plain images objectives compare with."""
    return sorted({name for objective in objectives for name in objective.teachers})


def anchor_names(objectives: Sequence[Objective]) -> list[str]:
    """Sorted names of the models whose parameters penalties compare with."""
    return sorted({name for objective in objectives for name in objective.anchors})


def observes(objectives: Sequence[Objective]) -> bool:
    """Whether any objective measures something on the predictions of the model that training starts from."""
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
    """How many uniform numbers objectives read for each image."""
    return max((objective.noise_per_image for objective in objectives), default=0)


def label_models(task: Task, labelled: bool) -> list[str]:
    """Names of the models whose predictions `make_targets` needs; a client with labels needs none for the labeler."""
    labeler_models = () if labelled else task.labeler.models
    return list(dict.fromkeys((*labeler_models, *(("start",) if observes(task.objectives) else ()))))


def named_mixture(name: str, blend: Blend, own: Tensor) -> Tensor:
    """The mixture ``[K, Q+S]`` that a labeler or an objective names; ``own`` if the blend does not set it."""
    return {**blend.references, "start": blend.start}.get(name, own)


def check_one_each(mixtures: Tensor, own: Tensor) -> None:
    """Check that there is one mixture for each client, as in ``own [K, Q+S]``.

    Raises:
        FedwcaError: there are others, for example one for each shared model.
    """
    if mixtures.shape != own.shape:
        raise FedwcaError(
            f"view.density takes a mixture for each client, such as view.own of shape {tuple(own.shape)}, and was "
            f"given {describe_value(mixtures)}; of several models ask one after another, by view.model"
        )


def observe(objectives: Sequence[Objective], start: Predictions) -> dict[str, Tensor]:
    """What objectives measure on the predictions of a client's start model, by name."""
    observed: dict[str, Tensor] = {}
    for objective in objectives:
        part = f"objective {objective.name!r}: observe"
        with only_reads(part, start):
            values = check_tensors(objective.observe(start), part)
        observed = join_named(observed, values, part)
    return observed


def make_targets(
    task: Task,
    predictions: Mapping[str, Predictions],
    draws: Tensor,
    labels: Tensor | None = None,
    trusted: Tensor | None = None,
) -> tuple[Targets, dict[str, Tensor]]:
    """Targets from a client's labels or else from its labeler, and what objectives observe of the start model.

    Args:
        task: what the client is to do.
        predictions: of the models that `label_models` names, on all of the client's images.
        draws: a uniform number for each image ``[N]``.
        labels: the client's own ``[N]``; None: it has none, and the labeler makes them.
        trusted: factor of the labeler's weights, 0 to 1, ``[]`` or ``[1]``; None: 1.
    """
    if labels is None:
        with only_reads(f"pseudo-labeler {task.labeler.name!r}", predictions, draws):
            unchecked = task.labeler({name: predictions[name] for name in task.labeler.models}, draws)
        targets = check_targets(unchecked, len(draws), task.labeler.name)
        if trusted is not None:
            # A labeler's weights may be integers or truth values, which have no halves.
            dtype = torch.promote_types(targets.weights.dtype, torch.float32)
            targets = replace(targets, weights=targets.weights * trusted.to(targets.weights.device, dtype))
    else:
        targets = Targets.of_labels(labels)
    return targets, observe(task.objectives, predictions["start"]) if observes(task.objectives) else {}


def names_of(objectives: Sequence[Objective]) -> str:
    """The names of objectives, for messages."""
    return ", ".join(repr(objective.name) for objective in objectives)


def check_is_trained(loss: Tensor, objectives: Sequence[Objective]) -> None:
    """Check that the loss depends on the model, or that there is a penalty.

    Raises:
        FedwcaError: nothing would be trained.
    """
    if not loss.requires_grad and not penalizing(objectives):
        raise FedwcaError(
            f"objective {names_of(objectives)}: the loss does not depend on the model, so nothing would be trained; "
            "make it of batch.logits or batch.features, with torch and without detach"
        )


def measure_loss(objective: Objective, batch: Batch, given: object = None) -> Tensor:
    """An objective's value ``[]``, in nats.

    Args:
        objective: one of the task.
        batch: what it sees.
        given: the tensors behind the batch, for `only_reads`; None: the batch's own, which count no changes under vmap.

    Raises:
        FedwcaError: it is not a single number, but for example one for each image; or it changed the batch in place,
            which other objectives read too.
    """
    with only_reads(f"objective {objective.name!r}", batch if given is None else given):
        value: object = objective(batch)
    if isinstance(value, int | float):
        return torch.full((), value, dtype=batch.logits.dtype, device=batch.logits.device)
    return check_number(value, f"objective {objective.name!r}")


def loss_of_all(
    task: Task,
    predictions: Predictions,
    draws: Tensor,
    source: Mapping[str, Tensor],
    shared: Mapping[str, Tensor],
    labels: Tensor | None = None,
) -> Tensor:
    """Sum of the task's objectives over all of a client's images ``[]``, in nats.

    Labels are the client's own or, if it has none, those that the labeler makes of these predictions alone.

    Args:
        task: what the client is to do.
        predictions: of the model, on all of the client's images.
        draws: a uniform number for each image ``[N]``.
        source: logits ``[N, M]`` of the source model, by its name, if objectives compare with it.
        shared: values that the server shares, made from uploads.
        labels: the client's own ``[N]``; None: it has none.
    """
    targets, observed = make_targets(task, dict.fromkeys((*task.labeler.models, "start"), predictions), draws, labels)
    batch = Batch(
        logits=predictions.logits,
        features=predictions.features,
        target_logits=predictions.logits,
        labels=targets.labels,
        weights=targets.weights.to(predictions.logits.dtype),
        reference_logits=dict.fromkeys(teacher_names(task.objectives), predictions.logits) | dict(source),
        view_logits=dict.fromkeys(get_args(ImageView), predictions.logits),
        observed=observed,
        pooled_uploads=shared,
        adapted_logits=predictions.logits if adapts(task.objectives) else None,
    )
    return torch.stack([measure_loss(objective, batch) for objective in task.objectives]).sum()


def batch_loss(objectives: Sequence[Objective], batch: Batch, given: object = None) -> Tensor:
    """The loss of a training step ``[]``: the sum of the objectives, in nats; arguments as for `measure_loss`."""
    return reduce(torch.add, [measure_loss(objective, batch, given) for objective in objectives])


def penalty(objectives: Sequence[Objective], parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor:
    """Sum of the objectives' penalties on the model itself ``[]``.

    Args:
        objectives: of the task; at least one is `penalizing`.
        parameters: trained parameters ``[P]``.
        anchors: trained parameters of the models that `anchor_names` names.

    Raises:
        FedwcaError: a penalty is not a single number.
    """
    penalties = [(objective.name, objective.penalty(parameters, anchors)) for objective in penalizing(objectives)]
    values = [check_number(value, f"objective {name!r}: penalty") for name, value in penalties]
    return torch.stack(values).sum()


def penalizing(objectives: Sequence[Objective]) -> list[Objective]:
    """Objectives that may have a penalty on the model itself."""
    return [objective for objective in objectives if objective.penalizes]


def collect(objectives: Sequence[Objective], trained: Predictions, targets: Targets) -> dict[str, Tensor]:
    """What a client uploads beside its trained model, by ``<objective>.<name>``."""
    uploads: dict[str, Tensor] = {}
    for objective in collecting_objectives(objectives):
        part = f"objective {objective.name!r}: collect"
        with only_reads(part, trained, targets):
            values = check_tensors(objective.collect(trained, targets), part)
        uploads |= {f"{objective.name}.{name}": value for name, value in values.items()}
    return uploads


class PredictionCache:
    """Predictions by tensor of mixtures; only the very same tensor object is found again."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Tensor, Predictions]] = {}

    def get(self, mixtures: Tensor, predict: Callable[[Tensor], Predictions]) -> Predictions:
        """Predictions of the mixtures' models; computed only once for the same tensor of mixtures."""
        if id(mixtures) not in self._found:
            # The mixtures are stored with their predictions, so that no other tensor can get the same id.
            self._found[id(mixtures)] = (mixtures, predict(mixtures))
        return self._found[id(mixtures)][1]

    def clear(self) -> None:
        """Drop all stored predictions."""
        self._found.clear()
