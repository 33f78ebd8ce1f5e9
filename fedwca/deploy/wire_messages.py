"""Messages between server and clients, models as named tensors, and checks of received tensors."""

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
"""Key in `Parcel.beside` of the moments that a client is grouped by."""
VERSION = "fedwca"
"""Key in `Parcel.notes` of the sender's version of fedwca."""
TURNED_AWAY = "turned away"
"""Name of the record that tells a node why it takes no part."""


@dataclass(frozen=True)
class Parcel:
    """One message, from the server to a client (down) or back (up)."""

    kind: MessageKind
    """Down: ``train`` (a task), ``final`` (the model the client ends with). Up: ``upload`` (the answer to a task),
    ``lost`` (the client does not have the source model), ``done`` (the final model has arrived)."""
    round: int = 0
    models: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Model name to tensor name to values. Down: ``source`` with its classifier, once; ``sent-0``, ``sent-1`` …; up:
    ``model``, and ``largest`` where uploads are compressed."""
    report: Mapping[str, Tensor] = field(default_factory=dict)
    """Up: the aggregator's reports, one vector each; and ``label``, the cluster a client chose."""
    beside: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors that are neither models nor reports. Up: the result of `collect`, by ``<objective>.<name>``, and once
    `MOMENTS`; down: the result of `pool` on all clients' uploads."""
    notes: Mapping[str, int | float | str] = field(default_factory=dict)
    """Plain values, such as the number of training images."""

    @property
    def bytes(self) -> int:
        """Size of all tensors, without names and framing."""
        groups = (self.report, self.beside, *self.models.values())
        return sum(tensor.numel() * tensor.element_size() for group in groups for tensor in group.values())


def row_to_tensors(row: Tensor, layout: Layout, transport: Transport = "full") -> dict[str, Tensor]:
    """Return a model ``[P]`` as named tensors; with ``half``, values beyond float16's range are clamped."""
    types = wire_types(layout, transport)
    return {slot.name: cast_in_range(slot.of(row), types[slot.name]) for slot in layout.slots}


def tensors_to_row(tensors: Mapping[str, Tensor], layout: Layout) -> Tensor:
    """Return named tensors, in which `tensors_problem` finds nothing, as a model ``[P]`` float32."""
    return torch.cat([tensors[slot.name].reshape(-1).float() for slot in layout.slots])


def tensors_problem(tensors: Mapping[str, Tensor], slots: Iterable[Slot], types: Mapping[str, torch.dtype]) -> str:
    """Return why named tensors are not a model's: names, shapes, types, values that are not finite; empty if they are.

    Args:
        tensors: by name.
        slots: the tensors that there should be.
        types: expected type of each; see `wire_types`.
    """
    by_name = {slot.name: slot for slot in slots}
    if missing_names := sorted(set(by_name) - set(tensors)):
        return f"lacks the tensor {missing_names[0]!r}"
    if unknown_names := sorted(set(tensors) - set(by_name)):
        return f"has the tensor {unknown_names[0][:80]!r}, which this model does not have"
    problems = ((name, tensor_problem(tensors[name], slot.shape, types[name])) for name, slot in by_name.items())
    return next((f"{name} {problem}" for name, problem in problems if problem), "")
