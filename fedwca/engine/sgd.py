"""One step of SGD with momentum, by torch's own function, and gradient clipping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

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
    """Update parameters and momenta in place as `torch.optim.SGD`: g + wd·w, momentum without dampening.

    Args:
        parameters: to train.
        gradients: of each.
        momenta: of each; zeros before the first step.
        training: learning rate, momentum and weight decay.
        lr: replaces the learning rate of ``training``; None: does not.
    """
    # Where torch has a fused version, it makes a single pass over memory.
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


class SGD:
    """Plain steps of `torch.optim.SGD`, whose constructor imports torch's compiler, which takes seconds.

    Args:
        parameters: to train; a step leaves those without a gradient as they are.
        lr: learning rate.
        momentum: without dampening.
        weight_decay: added to the gradients times the parameters.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self._momenta: dict[int, Tensor | None] = {}

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters in place by their gradients."""
        trained = [index for index, parameter in enumerate(self.parameters) if parameter.grad is not None]
        momenta = [self._momenta.get(index) for index in trained]
        # Not fused, as the class does not by default: other last digits would be other source models.
        sgd(
            [self.parameters[index] for index in trained],
            [cast(Tensor, self.parameters[index].grad) for index in trained],
            momenta,
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        self._momenta.update(zip(trained, momenta, strict=True))


def separate_gradients(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Contiguous gradients of which no two share memory, so that each may be changed in place.

    Autograd gives parameters that are added the same gradient. Only those that share memory or are not contiguous are
    copied.
    """
    separate: list[Tensor] = []
    seen = set()
    for gradient in gradients:
        contiguous = gradient.contiguous()
        address = contiguous.untyped_storage().data_ptr()
        separate.append(contiguous.clone() if address in seen else contiguous)
        seen.add(address)
    return separate


def clip_together(gradients: Sequence[Tensor], clip: float | None) -> None:
    """Scale gradients in place so that their joint norm is at most ``clip``; None leaves them as they are."""
    if clip is not None:
        length = torch.stack([gradient.norm() for gradient in gradients]).norm()
        torch._foreach_mul_(list(gradients), clip_factor(length, clip))


def clip_factor(length: Tensor, clip: float) -> Tensor:
    """Factor that shortens gradients of norm ``length`` to ``clip``, at most 1, as torch.nn.utils.clip_grad_norm_."""
    return (clip / (length + 1e-6)).clamp_max(1)
