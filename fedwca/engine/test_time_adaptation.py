"""Steps on an adaptation's loss of all images that a client predicts, whichever engine runs them.

A step's gradient is exact, with the activations of one chunk in memory: the loss is differentiated by all logits, and
these derivatives are pulled back through the model chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.engine.class_predictions import ClassPredictions, classify_logits
from fedwca.engine.device_copy import to_device
from fedwca.engine.sgd import clip_factor
from fedwca.functional import prediction_entropy


@dataclass(frozen=True, eq=False)
class AdaptedModel:
    """A client's model after its steps, and what it says of the images that they were made on."""

    model: Tensor
    """``[P]``"""
    logits: Tensor
    """``[N, M]``, in eval mode."""
    entropies: tuple[float, ...]
    """Mean entropies of the outputs in nats: as it was sent, then after each step made; none without images."""
    taken: int
    """Steps behind the model that was taken; 0: it is as it was sent."""

    @classmethod
    def unmoved(cls, model: Tensor, classes: int) -> AdaptedModel:
        """Of a client without images: the model ``[P]`` as it was sent."""
        return cls(model, model.new_zeros(0, classes), (), 0)

    def classify(self) -> ClassPredictions:
        """The classes that it predicts ``[N]`` with confidences, on the CPU."""
        return classify_logits(self.logits)

    @property
    def steps(self) -> int:
        """Steps that were made."""
        return max(0, len(self.entropies) - 1)


class ModelsToAdapt(Protocol):
    """G clients' images, and what models ``[G, P]`` make of them; rows behind a client's last image mean nothing."""

    @property
    def sizes(self) -> Sequence[int]:
        """Images of each."""

    @property
    def base(self) -> slice:
        """Positions of a row that steps move."""

    def logits(self, models: Tensor) -> Tensor:
        """``[G, N, M]`` in eval mode, without gradient."""

    def each(self, function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
        """``function`` of each client's own logits ``[N_g, M]``, for a number of each ``[G]``."""

    def losses(self, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
        """The adaptation's loss of each client's own images ``[G]``, differentiable in the logits."""

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        """Gradient ``[G, base]`` in eval mode, of what has the derivatives ``slopes [G, N, M]`` in the logits."""


def adapt_models(work: ModelsToAdapt, models: Tensor, adaptation: Adaptation, lr: float) -> list[AdaptedModel]:
    """Make an adaptation's steps, and take a model of each client as it says.

    Who has stopped stays as it is while others go on, so that nobody's model depends on another's.
    Source: FedTTA, eqs. 10-12; with patience FedTTA++, as `fedwca.functional.least_entropy` reads it.

    Args:
        work: the clients.
        models: theirs ``[G, P]``; left as they are.
        adaptation: says loss, number of steps, and which model is taken.
        lr: step size.

    Returns:
        One entry a client, in order; without images a model stays as it was sent.
    """

    def measure(logits: Tensor) -> Tensor:
        return work.each(prediction_entropy, logits)

    patience = adaptation.patience
    # Who goes on is read from the device only where somebody may stop.
    goes = [size > 0 for size in work.sizes]
    going = to_device(torch.tensor(goes), models.device)
    moved, logits = models.clone(), work.logits(models)
    history, entropies = [measure(logits)], [1] * len(work.sizes)
    best, best_logits = moved.clone(), logits
    taken = torch.zeros(len(models), dtype=torch.int64, device=models.device)
    since = torch.zeros_like(taken)
    # What is no number counts as infinite, and the first candidate is taken whatever it is.
    least = None if adaptation.candidates == "adapted" else history[0].nan_to_num(torch.inf, torch.inf)
    if adaptation.candidates == "unadapted":
        least = torch.full_like(history[0], -torch.inf)  # which no step goes below
    for step in range(1, adaptation.steps + 1):
        if not any(goes):
            break
        after = _move(work, adaptation, moved, logits, lr)
        moved = torch.where(going[:, None], after, moved)
        logits = torch.where(going[:, None, None], work.logits(moved), logits)
        found = measure(logits)
        history.append(found)
        entropies = [count + went for count, went in zip(entropies, goes, strict=True)]
        if patience is None:
            better = going
        else:
            found = found.nan_to_num(torch.inf, torch.inf)
            better = going if least is None else going & (found < least)
            least = found if least is None else torch.where(better, found, least)
            since = torch.where(better, 0, since + 1)
        taken = torch.where(better, step, taken)
        best = torch.where(better[:, None], moved, best)
        best_logits = torch.where(better[:, None, None], logits, best_logits)
        if patience is not None:
            going = going & (since < patience)
            goes = going.tolist()
    told, chosen = torch.stack(history, 1).tolist(), taken.tolist()
    return [
        AdaptedModel(best[i], best_logits[i, :size], tuple(told[i][: entropies[i]]) if size else (), chosen[i])
        for i, size in enumerate(work.sizes)
    ]


def make_step(
    work: ModelsToAdapt, adaptation: Adaptation, models: Tensor, logits: Tensor, lr: float
) -> tuple[Tensor, Tensor]:
    """Models ``[G, P]`` after one step of an adaptation on all images, and their logits ``[G, N, M]``.

    Args:
        work: the clients, each with images.
        adaptation: its loss is descended.
        models: theirs ``[G, P]``; left as they are.
        logits: theirs before the step ``[G, N, M]``.
        lr: step size.
    """
    moved = _move(work, adaptation, models, logits, lr)
    return moved, work.logits(moved)


def _move(work: ModelsToAdapt, adaptation: Adaptation, models: Tensor, logits: Tensor, lr: float) -> Tensor:
    """Copies of models ``[G, P]`` after one step."""
    moved, gradient = models.clone(), _gradient(work, adaptation, models, logits)
    if adaptation.weight_decay:
        gradient = gradient + adaptation.weight_decay * models[:, work.base]
    moved[:, work.base] -= lr * gradient
    return moved


def _gradient(work: ModelsToAdapt, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
    """The exact gradient of each client's loss over all of its images ``[G, base]``, no longer than it may be."""
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(work.losses(adaptation, models, leaf).sum(), leaf)
        gradient = work.pull_back(models, slopes)
    if adaptation.clip is None:
        return gradient
    return gradient * clip_factor(gradient.norm(dim=1, keepdim=True), adaptation.clip)
