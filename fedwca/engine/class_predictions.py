"""What models say of test images: classes, and how sure they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class ClassPredictions(NamedTuple):
    """A client's test images as its model sees them, on the CPU."""

    classes: Tensor
    """Predicted class of each ``[N]`` int64."""
    confidences: Tensor
    """Output of that class ``[N]``, 0 to 1."""


class PredictsTests(ABC):
    """What has clients' test images and models."""

    @abstractmethod
    def predict_tests(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[ClassPredictions]:
        """What models say of each client's test images.

        Args:
            weights: the model of each client as a mixture of ``rows`` ``[K, R]``; None: its own in the bank.
            rows: ``[R, P]``.
            clients: whose; None: all.
        """

    def classify(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Predicted classes of each client's test images ``[N_test]``, on the CPU; see `predict_tests`."""
        return [own.classes for own in self.predict_tests(weights, rows, clients)]


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
