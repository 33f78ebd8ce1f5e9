"""What travels: models as named tensors, and the checks a hostile upload has to pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedwca.engine.bank import Layout
from fedwca.types import Simplex
from fedwca.uploads import refuse

Kind = Literal["train", "upload", "lost", "final", "done"]
Transport = Literal["full", "half"]
DTYPES: dict[Transport, torch.dtype] = {"full": torch.float32, "half": torch.float16}


@dataclass(frozen=True)
class Parcel:
    """One message, down or up."""

    kind: Kind
    """train: a task; upload: its answer; lost: the client does not know the source model; final, done: the end."""
    round: int = 0
    models: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Model → tensor → values. Down: ``source`` with its classifier, once; ``sent-0``, ``sent-1`` …; up: ``model``."""
    report: Mapping[str, Tensor] = field(default_factory=dict)
    """What the aggregator declares, one vector each."""
    notes: Mapping[str, int | float | str] = field(default_factory=dict)
    """Plain values, such as the number of training images."""

    @property
    def bytes(self) -> int:
        """Of all tensors, without names and framing."""
        tensors = [*self.report.values(), *(t for model in self.models.values() for t in model.values())]
        return sum(t.numel() * t.element_size() for t in tensors)


def unpacked(row: Tensor, layout: Layout, transport: Transport = "full") -> dict[str, Tensor]:
    """A model ``[P]`` as named tensors; ``half`` keeps values beyond its range at the range's end."""
    kind = DTYPES[transport]
    limit = torch.finfo(kind).max
    slots = (*layout.parameters, *layout.statistics)
    return {slot.name: slot.of(row.clamp(-limit, limit) if transport == "half" else row).to(kind) for slot in slots}


def packed(tensors: Mapping[str, Tensor], layout: Layout) -> Tensor:
    """Named tensors as a model ``[P]``, float32; see `misfit` for what must hold."""
    return torch.cat([tensors[slot.name].reshape(-1).float() for slot in (*layout.parameters, *layout.statistics)])


def misfit(tensors: Mapping[str, Tensor], layout: Layout, transport: Transport = "full") -> str:
    """Why named tensors are no model of this layout; empty if they are one."""
    slots = {slot.name: slot for slot in (*layout.parameters, *layout.statistics)}
    if lacks := sorted(set(slots) - set(tensors)):
        return f"lacks the tensor {lacks[0]!r}"
    if strange := sorted(set(tensors) - set(slots)):
        return f"has the tensor {strange[0][:80]!r}, which this model does not have"
    for name, slot in slots.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != slot.shape:
            return f"{name} has shape {tuple(tensor.shape)}; right is {slot.shape}"
        if tensor.dtype != DTYPES[transport]:
            return f"{name} has type {tensor.dtype}; right is {DTYPES[transport]}"
        if not bool(torch.isfinite(tensor).all()):
            return f"{name} has values that are not finite"
    return ""


@dataclass(frozen=True)
class Expected:
    """What the server takes from one client in one round."""

    round: int
    token: str
    """Drawn anew for every task; an upload without it answers another task."""
    layout: Layout
    transport: Transport
    declared: Mapping[str, Simplex]
    shared: int
    """Shared models that were sent."""
    own: Tensor
    """The first model that was sent ``[P]``; in a first round the source model."""
    choices: int = 0
    """Clusters the client may choose from; 0: it does not choose."""
    samples: int = 0
    """Training images it named before; 0: none yet."""
    most: int = 10_000_000
    """More training images than this are not believed."""


def flaw(parcel: Parcel, expected: Expected) -> str:
    """Why an upload is refused, in a sentence; empty if it is in order."""
    if parcel.kind != "upload":
        return f"is a {parcel.kind!r}, not an upload"
    if parcel.round != expected.round:
        return f"is for round {parcel.round}; this is round {expected.round}"
    if parcel.notes.get("token") != expected.token:
        return "answers another task than the one it was sent"
    if set(parcel.models) != {"model"}:
        return f"holds {len(parcel.models)} models by other names than 'model'; right is that one"
    if why := misfit(parcel.models["model"], expected.layout, expected.transport):
        return why
    samples = parcel.notes.get("samples")
    if not isinstance(samples, int) or not 1 <= samples <= expected.most:
        return f"names {samples!r} training images; right is 1 to {expected.most}"
    if expected.samples and samples != expected.samples:
        return f"names {samples} training images after {expected.samples} in an earlier round"
    return flawed_report(parcel, expected)


def flawed_report(parcel: Parcel, expected: Expected) -> str:
    """Why the numbers beside the model are refused; empty if they are in order."""
    given = dict(parcel.report)
    choice = given.pop("label", None)
    if lacks := sorted(set(expected.declared) - set(given)):
        return f"reports no {', '.join(lacks)}"
    for name, value in given.items():
        if why := refuse(value, expected.declared.get(name), expected.shared):
            return f"{name[:80]} {why}"
    if (choice is not None) != bool(expected.choices):
        return "chooses a cluster in a method where clients do not, or does not where they do"
    if choice is None:
        return ""
    right = choice.shape == (1,) and choice.dtype == torch.int64 and 0 <= int(choice[0]) < expected.choices
    return "" if right else f"chooses no cluster from 0 to {expected.choices - 1}"
