"""One step on an adaptation's loss that training differentiates through, for one or many clients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.engine.sgd import clip_factor
from fedwca.errors import FedwcaError


def normalize_weight(length: Tensor, direction: Tensor) -> Tensor:
    """Weight ``[…, M, q]`` of weight normalisation, from row directions ``[…, M, q]`` and row lengths ``[…, M, 1]``.

    Torch's own operation has no vmap rule, and its second derivatives with respect to the direction are wrong
    (torch 2.15).
    """
    weight: Tensor = direction * (length / direction.norm(dim=-1, keepdim=True))
    return weight


def check_can_descend(losses: Tensor, adaptation: Adaptation) -> Tensor:
    """An adaptation's losses, if they depend on what they were computed from.

    Raises:
        FedwcaError: they are constants, of which there is no gradient.
    """
    if not losses.requires_grad:
        raise FedwcaError(
            f"adaptation {adaptation.name!r}: the loss does not depend on the outputs, so no step can be taken; make "
            "it of the logits, with torch and without detach"
        )
    return losses


def step_parameters(
    losses: Tensor, parameters: Mapping[str, Tensor], adaptation: Adaptation, lr: float
) -> dict[str, Tensor]:
    """Parameters after one gradient step on the losses, differentiable with respect to all that the losses depend on.

    Source: FedTTA, eqs. 3-5. Like `fedwca.functional.inner_step`, but from losses that are computed already.

    Args:
        losses: of one client ``[]``, or of G ``[G]``.
        parameters: by name, of one client or of each ``[G, …]``.
        adaptation: sets the largest gradient norm and the weight decay.
        lr: step size.
    """
    names, leaves = list(parameters), list(parameters.values())
    unclipped = torch.autograd.grad(losses.sum(), leaves, create_graph=True, allow_unused=True, materialize_grads=True)
    gradients = list(unclipped)
    if adaptation.clip is not None:
        clients = len(losses) if losses.ndim else 1
        squares = torch.stack([g.reshape(clients, -1).square().sum(1) for g in gradients]).sum(0)
        # The gradient of the square root is infinite at 0.
        lengths = torch.where(squares > 0, squares.where(squares > 0, 1).sqrt(), 0)
        factors = clip_factor(lengths, adaptation.clip)
        factors = factors if losses.ndim else factors[0]
        gradients = [g * factors.reshape(factors.shape + (1,) * (g.ndim - factors.ndim)) for g in gradients]
    if decay := adaptation.weight_decay:
        gradients = [g + decay * leaf for leaf, g in zip(leaves, gradients, strict=True)]
    return {name: leaf - lr * g for name, leaf, g in zip(names, leaves, gradients, strict=True)}
