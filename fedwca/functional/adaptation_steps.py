"""Test-time adaptation: a learned loss on outputs, one gradient step on it, and the choice of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import length_of_rows, sample_mask


def learned_loss(
    outputs: Tensor,
    mask: Tensor | None = None,
    reduction: Literal["norm", "rms"] = "norm",
    batch: int | None = None,
) -> Tensor:
    """Compute the loss to be minimised, the length of an adaptation network's outputs; twice differentiable.

    Source: FedTTA, eqs. 2, 4 and 11. The released code takes the mean over batches (``batch``).

    Args:
        outputs: ``[N]`` or ``[N, 1]``, one number per sample.
        mask: ``[N]``, 1 for a sample, 0 for padding.
        reduction: ``norm``: the Euclidean length over samples; ``rms``: that divided by the root of their number.
        batch: None: all samples at once; else the mean over batches of so many consecutive samples, the last shorter.

    Returns:
        ``[]`` in units of the outputs, at least 0; 0 without samples. The gradient of outputs that are all 0 is 0.

    Raises:
        UsageError: shapes do not fit, the batch is below 1, or there is no such reduction.

    >>> outputs = torch.tensor([3.0, 4.0, 5.0])
    >>> learned_loss(outputs[:2]), learned_loss(outputs, batch=2)  # 5, and the mean of 5 and 5
    (tensor(5.), tensor(5.))
    """
    if outputs.ndim not in (1, 2) or (outputs.ndim == 2 and outputs.shape[1] != 1):
        raise UsageError(f"expected one number a sample, [N] or [N, 1], got {list(outputs.shape)}")
    if reduction not in ("norm", "rms"):
        raise UsageError(f"no reduction '{reduction}'; there are 'norm' and 'rms'")
    if batch is not None and batch < 1:
        raise UsageError(f"the batch must be at least 1, not {batch}")
    values = outputs.reshape(-1)
    keep = sample_mask(values, mask)
    values = values.masked_fill(~keep, 0)
    size = max(1, len(values) if batch is None else min(batch, len(values)))
    # Samples come before padding, so that padding makes no batch of its own.
    order = (~keep).long().argsort(stable=True) if mask is not None else torch.arange(len(keep), device=keep.device)
    padding = -len(values) % size
    batches = torch.cat([values[order], values.new_zeros(padding)]).reshape(-1, size)
    counts = torch.cat([keep[order], keep.new_zeros(padding)]).reshape(-1, size).sum(1)
    lengths = length_of_rows(batches)
    if reduction == "rms":
        lengths = lengths / counts.clamp_min(1).to(lengths.dtype).sqrt()  # a root of integers is float32
    return lengths.sum() / (counts > 0).sum().clamp_min(1)


def inner_step(
    forward: Callable[[dict[str, Tensor]], Tensor],
    loss: Callable[[Tensor], Tensor],
    parameters: Mapping[str, Tensor],
    lr: float | Tensor,
) -> tuple[dict[str, Tensor], Tensor]:
    """Take one gradient step on a loss of the outputs; the step is differentiable in all that the functions hold.

    Source: FedTTA, eqs. 3-5 and 10-12.

    Args:
        forward: outputs ``[N, M]`` of the model with these parameters.
        loss: ``[]`` of the outputs.
        parameters: tensors by name.
        lr: step size.

    Returns:
        The parameters after the step, and the outputs ``[N, M]`` before it. Gradients of either flow back to the
        parameters and to whatever the two functions hold, the second derivatives of the loss included.

    >>> inner_step(lambda p: p["w"][None], lambda z: z.square().sum(), {"w": torch.ones(1)}, 0.1)  # 1 - 0.1 · 2
    ({'w': tensor([0.8000])}, tensor([[1.]]))
    """

    def objective(values: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = forward(values)
        return loss(logits), logits

    gradients, logits = torch.func.grad(objective, has_aux=True)(dict(parameters))
    return {name: value - lr * gradients[name] for name, value in parameters.items()}, logits


def least_entropy(entropies: Tensor, patience: int) -> tuple[Tensor, Tensor]:
    """Find the first lowest entropy, reading until ``patience`` entries in a row bring no new lowest one.

    Source: FedTTA++ (sec. 3.3.2 of the paper): early stopping on the entropy of the outputs.

    Args:
        entropies: ``[..., E]``, one per step; NaN counts as infinite.
        patience: entries in a row without a new lowest one after which reading stops, at least 1.

    Returns:
        Positions ``[...]`` int64 of the lowest entropies, and the numbers ``[...]`` int64 of entries that were read.

    Raises:
        UsageError: there is no entry, or the patience is below 1.

    >>> least_entropy(torch.tensor([3.0, 2.0, 2.5, 2.0, 1.0]), patience=2)
    (tensor(1), tensor(4))
    """
    if not entropies.ndim or not entropies.shape[-1]:
        raise UsageError("there is no entropy to choose from")
    if patience < 1:
        raise UsageError(f"the patience must be at least 1, not {patience}")
    entropies = entropies.nan_to_num(torch.inf, torch.inf, -torch.inf)
    steps = torch.arange(entropies.shape[-1], device=entropies.device)
    least = entropies.cummin(-1).values
    # The first entry is always the lowest so far.
    improved = torch.cat(
        [torch.ones_like(steps[:1], dtype=torch.bool).expand_as(least[..., :1]), entropies[..., 1:] < least[..., :-1]],
        -1,
    )
    latest = (steps * improved).cummax(-1).values
    stops = (steps - latest >= patience) | (steps == len(steps) - 1)
    stop = stops.long().argmax(-1)
    return latest.gather(-1, stop[..., None])[..., 0], stop + 1
