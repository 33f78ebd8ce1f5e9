"""One step of SGD with momentum, by torch's own function, and the clipping of its gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from fedwca.core.training_settings import Training


def sgd_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    momenta: Sequence[Tensor],
    training: Training,
    lr: float | None = None,
) -> None:
    """Change parameters and momenta in place: g + wd·w, momentum without dampening, as `torch.optim.SGD` does it.

    Args:
        parameters: what is trained.
        gradients: of each.
        momenta: of each; zeros before the first step.
        training: learning rate, momentum and weight decay.
        lr: stands in for its learning rate.
    """
    # One pass over memory where torch has it.
    fused = parameters[0].device.type in ("cpu", "cuda")
    sgd(
        list(parameters),
        list(gradients),
        list(momenta),
        foreach=not fused,
        fused=fused,
        lr=training.lr if lr is None else lr,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        dampening=0.0,
        nesterov=training.nesterov,
        maximize=False,
    )


def clip_together(gradients: Sequence[Tensor], clip: float | None) -> None:
    """Shorten gradients in place where, taken together, they are longer than ``clip``; None: leave them."""
    if clip is not None:
        length = torch.stack([gradient.norm() for gradient in gradients]).norm()
        torch._foreach_mul_(list(gradients), clip_factor(length, clip))


def clip_factor(length: Tensor, clip: float) -> Tensor:
    """What shortens gradients of these lengths to ``clip`` where they are longer, as torch.nn.utils.clip_grad_norm_."""
    return (clip / (length + 1e-6)).clamp_max(1)
