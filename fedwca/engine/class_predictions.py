"""Predictions of test images: classes and confidences."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ClassPredictions(NamedTuple):
    """Predictions of a client's test images, on the CPU."""

    classes: Tensor
    """Predicted class of each ``[N]`` int64."""
    confidences: Tensor
    """Softmax probability of that class ``[N]``, 0 to 1."""


def classify_logits(logits: Tensor) -> ClassPredictions:
    """The class of the largest logit and its softmax probability, copied to the CPU together.

    Args:
        logits: ``[…, N, M]``.

    Returns:
        Both ``[…, N]``.
    """
    # At least float32, in which every class number is exact.
    probabilities = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    stacked = torch.stack([logits.argmax(-1).to(probabilities.dtype), probabilities.amax(-1)]).cpu()
    return ClassPredictions(stacked[0].long(), stacked[1])


def classify_nothing() -> ClassPredictions:
    """Predictions of a client without test images."""
    return ClassPredictions(torch.zeros(0, dtype=torch.int64), torch.zeros(0))
