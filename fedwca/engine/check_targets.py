"""Checks of the targets that a pseudo-labeler gives: their types and shapes, then their values."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.core.component_answers import ROUNDING, check_tensors, describe_value
from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Targets
from fedwca.errors import FedwcaError


def check_targets(targets: Targets, images: int, name: str) -> Targets:
    """A labeler's targets as they are, after a check of their types and shapes.

    Raises:
        FedwcaError: a field is not a tensor with one value for each of the client's images.
    """
    if not isinstance(targets, Targets):
        raise FedwcaError(f"pseudo-labeler {name!r} gave {describe_value(targets)}; right are Targets")
    for field in ("labels", "weights", "partners", "partner_weights", "models_agree"):
        value = getattr(targets, field)
        dtype_fits = field not in ("labels", "partners") or getattr(value, "dtype", None) == torch.int64
        if not isinstance(value, Tensor) or value.shape != (images,) or not dtype_fits:
            kind = "int64" if field in ("labels", "partners") else "numbers"
            answer = f"{field} {describe_value(value)}"
            raise FedwcaError(f"pseudo-labeler {name!r} gave {answer}; right are {kind} of shape ({images},)")
    check_tensors(targets.notes, f"pseudo-labeler {name!r}: notes")
    return targets


def check_target_values(targets: Targets, classes: int, labeler: PseudoLabeler) -> None:
    """Check the values of a labeler's targets, on the CPU only: on a GPU the host would have to wait for them.

    Args:
        targets: ``[..., N]`` each, of clients with N images.
        classes: M.
        labeler: the one that gave them.

    Raises:
        FedwcaError: values are out of range; says for how many images.
    """
    if targets.labels.device.type != "cpu":
        return
    images, mixed = targets.labels.shape[-1], targets.partner_weights > 0
    problems = {
        f"labels that are no class; right are 0 to {classes - 1}": (targets.labels < 0) | (targets.labels >= classes),
        "weights that are not from 0 to 1": ~((targets.weights >= 0) & (targets.weights <= 1 + ROUNDING)),
        "partner_weights that are not from 0 to 1": ~(
            (targets.partner_weights >= 0) & (targets.partner_weights <= 1 + ROUNDING)
        ),
        f"partners that the client has not; right are 0 to {images - 1}": mixed
        & ((targets.partners < 0) | (targets.partners >= images)),
    }
    if not labeler.mixes:
        problems["images to mix, and says by mixes = False that there are none"] = mixed
    if not bool(torch.stack(list(problems.values())).any()):
        return
    problem, flags = next((problem, flags) for problem, flags in problems.items() if bool(flags.any()))
    raise FedwcaError(
        f"pseudo-labeler {labeler.name!r} gave {problem} (for {int(flags.sum())} of {flags.numel()} images)"
    )
