"""Frozen classifiers of models that began from different source models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.engine.device_copy import to_device


@dataclass(frozen=True)
class StackedClassifiers:
    """Frozen classifiers of G models that began from different source models."""

    weight: Tensor
    """``[G, q, M]``, transposed."""
    bias: Tensor
    """``[G, 1, M]``"""

    @classmethod
    def of(cls, networks: Sequence[Network], counts: Sequence[int]) -> StackedClassifiers:
        """Those of networks, each for so many models."""
        repeats = torch.tensor(counts)
        rows = to_device(torch.repeat_interleave(torch.arange(len(counts)), repeats), networks[0].class_vectors.device)
        weight = torch.stack([network.class_vectors for network in networks])
        bias = torch.stack([network.classifier.bias.detach() for network in networks])
        return cls(weight[rows].transpose(1, 2).contiguous(), bias[rows][:, None])

    def __getitem__(self, rows: slice | Tensor) -> StackedClassifiers:
        return StackedClassifiers(self.weight[rows], self.bias[rows])

    def __call__(self, features: Tensor) -> Tensor:
        """``[G, B, q]`` to logits ``[G, B, M]``."""
        return torch.baddbmm(self.bias, features, self.weight)
