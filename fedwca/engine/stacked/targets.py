"""What a crowd is trained towards: targets of clients of unequal size, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from fedwca.core.messages import Targets


@dataclass(frozen=True)
class StackedTargets:
    """`fedwca.core.messages.Targets` of G clients; what stands behind a client's last sample means nothing."""

    labels: Tensor
    """``[G, N]`` int64."""
    weights: Tensor
    """``[G, N]``"""
    partners: Tensor
    """``[G, N]`` int64."""
    mix: Tensor
    """``[G, N]``"""
    matched: Tensor
    """``[G, N]`` bool."""
    notes: Mapping[str, Tensor]
    """By name ``[G, …]``."""

    @classmethod
    def of(cls, targets: Targets) -> StackedTargets:
        """One client's, inside a function that is run for many."""
        return cls(**{field.name: getattr(targets, field.name) for field in fields(cls)})

    def tree(self) -> dict[str, Any]:
        """The tensors by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def split(self, sizes: Sequence[int]) -> list[Targets]:
        """Each client's own, as views."""
        whole = (self.labels, self.weights, self.partners, self.mix, self.matched)
        notes = {name: value.unbind() for name, value in self.notes.items()}
        rows = zip(*(value.unbind() for value in whole), strict=True)
        longest, found = self.labels.shape[1], []
        for i, (n, row) in enumerate(zip(sizes, rows, strict=True)):
            labels, weights, partners, mix, matched = (x if n == longest else x[:n] for x in row)
            own = {name: value[i] for name, value in notes.items()}
            found.append(Targets(labels, weights, partners, mix, matched, own))
        return found


@dataclass(frozen=True)
class StackedContext:
    """As `fedwca.engine.task.EpochContext`, for G clients."""

    targets: StackedTargets
    taught: Mapping[str, Tensor]
    """Logits ``[G, N, M]`` of the plain images by frozen models."""
    anchors: Mapping[str, Tensor]
    """Trained parameters ``[G, P]`` of the models that penalties compare with."""
    observed: Mapping[str, Tensor]
    """``[G, …]``"""
    shared: Mapping[str, Tensor]
    """The same for all."""


def join_targets(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mappings of tensors ``[g, …]`` of several spans as one of ``[G, …]``, shorter ones filled up with zeros.

    >>> join_targets([{"x": torch.ones(1, 2)}, {"x": torch.ones(1, 1)}])["x"].tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    if not parts:
        return {}
    found: dict[str, Any] = {}
    for name, first in parts[0].items():
        values = [part[name] for part in parts]
        if isinstance(first, Mapping):
            found[name] = join_targets(values)
        elif first.ndim < 2 or all(value.shape[1] == first.shape[1] for value in values):
            found[name] = torch.cat(values)
        else:
            whole = first.new_zeros(sum(map(len, values)), max(v.shape[1] for v in values), *first.shape[2:])
            at = 0
            for value in values:
                whole[at : at + len(value), : value.shape[1]] = value
                at += len(value)
            found[name] = whole
    return found
