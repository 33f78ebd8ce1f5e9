"""Gradient steps on an adaptation's loss over all images that a client predicts, for every engine.

The gradient of a step is exact, with the activations of only one chunk in memory: the loss is differentiated with
respect to all logits, and these derivatives are propagated back through the model chunk by chunk.
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
    """A client's model after adaptation, and its outputs on the images it was adapted to."""

    model: Tensor
    """``[P]``"""
    logits: Tensor
    """``[N, M]``, in eval mode."""
    entropies: tuple[float, ...]
    """Mean entropies of the outputs in nats: of the model as it was sent, then after each step; empty if no images."""
    taken: int
    """Number of steps after which the chosen model was reached; 0: it is the model as it was sent."""

    @classmethod
    def unmoved(cls, model: Tensor, classes: int) -> AdaptedModel:
        """The result of a client without images: the model ``[P]`` as it was sent."""
        return cls(model, model.new_zeros(0, classes), (), 0)

    def classify(self) -> ClassPredictions:
        """Predicted classes ``[N]`` and their confidences, on the CPU."""
        return classify_logits(self.logits)

    @property
    def steps(self) -> int:
        """Number of steps that were made."""
        return max(0, len(self.entropies) - 1)


class ModelsToAdapt(Protocol):
    """Images of G clients and passes of models ``[G, P]`` over them; rows past a client's last image are undefined."""

    @property
    def sizes(self) -> Sequence[int]:
        """Number of images of each client."""

    @property
    def base(self) -> slice:
        """Positions of a row that steps change."""

    def logits(self, models: Tensor) -> Tensor:
        """Logits ``[G, N, M]`` in eval mode, without gradient."""

    def each(self, function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
        """Values ``[G]`` of ``function``, which takes one client's logits ``[N_g, M]`` and returns one number."""

    def losses(self, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
        """The adaptation's loss over each client's own images ``[G]``, differentiable with respect to the logits."""

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        """Gradient ``[G, base]`` in eval mode, given a loss's derivatives by the logits, ``slopes [G, N, M]``."""


def adapt_models(work: ModelsToAdapt, models: Tensor, adaptation: Adaptation, lr: float) -> list[AdaptedModel]:
    """Make an adaptation's steps and choose one model for each client by the adaptation's rule.

    A client that has stopped keeps its model while others go on, so no client's model depends on another's.
    Source: FedTTA, eqs. 10-12; with patience FedTTA++, as `fedwca.functional.least_entropy` reads it.

    Args:
        work: images of the clients.
        models: of the clients ``[G, P]``; not changed.
        adaptation: sets the loss, the number of steps, and which model is chosen.
        lr: step size.

    Returns:
        One entry per client, in order; without images it is the model as it was sent.
    """

    def mean_entropies(logits: Tensor) -> Tensor:
        return work.each(prediction_entropy, logits)

    patience = adaptation.patience
    # Only with patience can a client stop early; only then are flags read back from the device.
    continues = [size > 0 for size in work.sizes]
    active = to_device(torch.tensor(continues), models.device)
    adapted, logits = models.clone(), work.logits(models)
    history, counts = [mean_entropies(logits)], [1] * len(work.sizes)
    best, best_logits = adapted.clone(), logits
    best_step = torch.zeros(len(models), dtype=torch.int64, device=models.device)
    stale_steps = torch.zeros_like(best_step)
    # NaN counts as infinite, and the first candidate is chosen whatever its entropy.
    lowest = None if adaptation.candidates == "adapted" else history[0].nan_to_num(torch.inf, torch.inf)
    if adaptation.candidates == "unadapted":
        lowest = torch.full_like(history[0], -torch.inf)  # no step gets below it
    for step in range(1, adaptation.steps + 1):
        if not any(continues):
            break
        stepped = _move(work, adaptation, adapted, logits, lr)
        adapted = torch.where(active[:, None], stepped, adapted)
        logits = torch.where(active[:, None, None], work.logits(adapted), logits)
        entropy = mean_entropies(logits)
        history.append(entropy)
        counts = [number + is_active for number, is_active in zip(counts, continues, strict=True)]
        if patience is None:
            better = active
        else:
            entropy = entropy.nan_to_num(torch.inf, torch.inf)
            better = active if lowest is None else active & (entropy < lowest)
            lowest = entropy if lowest is None else torch.where(better, entropy, lowest)
            stale_steps = torch.where(better, 0, stale_steps + 1)
        best_step = torch.where(better, step, best_step)
        best = torch.where(better[:, None], adapted, best)
        best_logits = torch.where(better[:, None, None], logits, best_logits)
        if patience is not None:
            active = active & (stale_steps < patience)
            continues = active.tolist()
    entropies, steps = torch.stack(history, 1).tolist(), best_step.tolist()
    return [
        AdaptedModel(best[i], best_logits[i, :size], tuple(entropies[i][: counts[i]]) if size else (), steps[i])
        for i, size in enumerate(work.sizes)
    ]


def make_step(
    work: ModelsToAdapt, adaptation: Adaptation, models: Tensor, logits: Tensor, lr: float
) -> tuple[Tensor, Tensor]:
    """Models ``[G, P]`` after one step of an adaptation on all images, and their logits ``[G, N, M]``.

    Args:
        work: images of the clients, at least one each.
        adaptation: its loss is minimised.
        models: of the clients ``[G, P]``; not changed.
        logits: of these models, before the step ``[G, N, M]``.
        lr: step size.
    """
    adapted = _move(work, adaptation, models, logits, lr)
    return adapted, work.logits(adapted)


def _move(work: ModelsToAdapt, adaptation: Adaptation, models: Tensor, logits: Tensor, lr: float) -> Tensor:
    """Copies of the models ``[G, P]`` after one step."""
    adapted, gradient = models.clone(), _gradient(work, adaptation, models, logits)
    if adaptation.weight_decay:
        gradient = gradient + adaptation.weight_decay * models[:, work.base]
    adapted[:, work.base] -= lr * gradient
    return adapted


def _gradient(work: ModelsToAdapt, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
    """The exact gradient ``[G, base]`` of each client's loss over all its images, clipped as the adaptation says."""
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(work.losses(adaptation, models, leaf).sum(), leaf)
        gradient = work.pull_back(models, slopes)
    if adaptation.clip is None:
        return gradient
    return gradient * clip_factor(gradient.norm(dim=1, keepdim=True), adaptation.clip)
