"""What travels: models as named tensors, and whether tensors are what they should be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedwca.deploy.half_precision import Transport, cast_in_range, wire_types
from fedwca.engine.parameter_layout import Layout, Slot
from fedwca.federated.upload_checks import tensor_problem

MessageKind = Literal["train", "upload", "lost", "final", "done"]

MOMENTS = "clusterer.moments"
"""How `Parcel.beside` call the moments that a client is grouped by."""
VERSION = "fedwca"
"""How notes call the version of fedwca that sends them."""


@dataclass(frozen=True)
class Parcel:
    """One message, down or up."""

    kind: MessageKind
    """train: a task; upload: its answer; lost: the client does not know the source model; final, done: the end."""
    round: int = 0
    models: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Model → tensor → values. Down: ``source`` with its classifier, once; ``sent-0``, ``sent-1`` …; up: ``model``,
    and ``largest`` where small changes are left out."""
    report: Mapping[str, Tensor] = field(default_factory=dict)
    """What the aggregator declares, one vector each."""
    beside: Mapping[str, Tensor] = field(default_factory=dict)
    """What is exchanged that is no model. Up: what `collect` gave, by ``<objective>.<name>``, and once `MOMENTS`; down:
    what `pool` made of all clients' uploads."""
    notes: Mapping[str, int | float | str] = field(default_factory=dict)
    """Plain values, such as the number of training images."""

    @property
    def bytes(self) -> int:
        """Of all tensors, without names and framing."""
        groups = (self.report, self.beside, *self.models.values())
        return sum(tensor.numel() * tensor.element_size() for group in groups for tensor in group.values())


def row_to_tensors(row: Tensor, layout: Layout, transport: Transport = "full") -> dict[str, Tensor]:
    """A model ``[P]`` as named tensors; ``half`` keeps values beyond its range at the range's end."""
    wanted = wire_types(layout, transport)
    return {slot.name: cast_in_range(slot.of(row), wanted[slot.name]) for slot in layout.slots}


def tensors_to_row(tensors: Mapping[str, Tensor], layout: Layout) -> Tensor:
    """Named tensors as a model ``[P]``, float32; see `tensors_problem` for what must hold."""
    return torch.cat([tensors[slot.name].reshape(-1).float() for slot in layout.slots])


def tensors_problem(tensors: Mapping[str, Tensor], wanted: Iterable[Slot], types: Mapping[str, torch.dtype]) -> str:
    """Why named tensors are not those of a model's slots, in their `wire_types`; empty if they are."""
    by_name = {slot.name: slot for slot in wanted}
    if lacks := sorted(set(by_name) - set(tensors)):
        return f"lacks the tensor {lacks[0]!r}"
    if strange := sorted(set(tensors) - set(by_name)):
        return f"has the tensor {strange[0][:80]!r}, which this model does not have"
    refused = ((name, tensor_problem(tensors[name], slot.shape, types[name])) for name, slot in by_name.items())
    return next((f"{name} {why}" for name, why in refused if why), "")
