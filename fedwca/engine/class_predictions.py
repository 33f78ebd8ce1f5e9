"""What models say of test images: classes, and how sure they are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ClassPredictions(NamedTuple):
    """A client's test images as its model sees them, on the CPU."""

    classes: Tensor
    """Predicted class of each ``[N]`` int64."""
    confidences: Tensor
    """Output of that class ``[N]``, 0 to 1."""


def classify_logits(logits: Tensor) -> ClassPredictions:
    """The class of the largest logit, and its output; copied from a device in one piece.

    Args:
        logits: ``[…, N, M]``.

    Returns:
        Both ``[…, N]``.
    """
    # At least float32, which holds every number of a class.
    outputs = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    told = torch.stack([logits.argmax(-1).to(outputs.dtype), outputs.amax(-1)]).cpu()
    return ClassPredictions(told[0].long(), told[1])


def classify_nothing() -> ClassPredictions:
    """Of a client without test images."""
    return ClassPredictions(torch.zeros(0, dtype=torch.int64), torch.zeros(0))
