"""Targets of a batch of clients of unequal size, stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from torch import Tensor

from fedwca.core.messages import Targets
from fedwca.engine.stacked.vmap import Tree, UnequalTensors, map_tree


@dataclass(frozen=True)
class StackedContext:
    """As `fedwca.engine.client_task.EpochContext`, for G clients."""

    targets: Mapping[str, Tree]
    """`fedwca.core.messages.Targets` by field ``[G, N]``, notes by name ``[G, …]``; values after a client's last
    sample are undefined."""
    taught: Mapping[str, Tensor]
    """Logits ``[G, N, M]`` of the plain images by frozen models, by name."""
    anchors: Mapping[str, Tensor]
    """Trained parameters ``[G, P]`` of the models that penalties compare with, by name."""
    observed: Mapping[str, Tensor | UnequalTensors]
    """``[G, …]``, by name."""
    shared: Mapping[str, Tensor]
    """For one trial, the same values for all clients; for several trials, each client's own ``[G, …]``."""


def targets_tree(targets: Targets) -> dict[str, Tree]:
    """One client's targets by field, without notes, whose shapes may differ between clients."""
    return {field.name: getattr(targets, field.name) for field in fields(targets) if field.name != "notes"}


def split_targets(stacked: Mapping[str, Tree], sizes: Sequence[int]) -> list[Targets]:
    """Each client's own targets, as views.

    Args:
        stacked: of G clients, see `StackedContext`.
        sizes: images of each.
    """
    longest = stacked["labels"].shape[1]
    rows = map_tree(lambda values: values.unbind(), stacked)
    notes = rows.pop("notes")
    targets = []
    for i, n in enumerate(sizes):
        client_fields = {name: values[i] if n == longest else values[i][:n] for name, values in rows.items()}
        targets.append(Targets(**client_fields, notes={name: values[i] for name, values in notes.items()}))
    return targets
