"""What the server takes from a client, and the checks a hostile answer has to pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.core.messages import Bounded, Simplex
from fedwca.deploy.compression import TopKCompressor
from fedwca.deploy.messages import Parcel, Transport, kinds, parcel_problem, slots, tensors_to_row
from fedwca.engine.layout import Layout
from fedwca.federated.validation import extra_problem, report_problem


@dataclass(frozen=True)
class Expected:
    """What the server takes from one client in one round."""

    round: int
    token: str
    """Drawn anew for every task; an upload without it answers another task."""
    layout: Layout
    transport: Transport
    share: float | None
    """Of an update's entries that travel; None: the model travels whole."""
    declared: Mapping[str, Simplex]
    shared: int
    """Shared models that were sent."""
    travels: bool
    """Whether a model is uploaded at all."""
    beside: Mapping[str, Bounded]
    """What objectives declare, by ``<objective>.<name>``."""
    own: Tensor
    """The first model that was sent ``[P]``; in a first round the source model."""
    choices: int = 0
    """Clusters the client may choose from; 0: it does not choose."""
    samples: int = 0
    """Training images it named before; 0: none yet."""
    most: int = 10_000_000
    """More training images than this are not believed."""

    @property
    def thinning(self) -> TopKCompressor | None:
        """How the model is thinned; None: it travels whole."""
        return None if self.share is None else TopKCompressor(self.layout, self.share, self.transport)


def upload_problem(parcel: Parcel, expected: Expected) -> str:
    """Why an upload is refused, in a sentence; empty if it is in order."""
    if parcel.kind != "upload":
        return f"is a {parcel.kind!r}, not an upload"
    if parcel.round != expected.round:
        return f"is for round {parcel.round}; this is round {expected.round}"
    if parcel.notes.get("token") != expected.token:
        return "answers another task than the one it was sent"
    if why := model_problem(parcel, expected) or extras_problem(parcel, expected):
        return why
    samples = parcel.notes.get("samples")
    if not isinstance(samples, int) or not 1 <= samples <= expected.most:
        return f"names {samples!r} training images; right is 1 to {expected.most}"
    if expected.samples and samples != expected.samples:
        return f"names {samples} training images after {expected.samples} in an earlier round"
    return numbers_problem(parcel, expected)


def model_problem(parcel: Parcel, expected: Expected) -> str:
    """Why the model is refused; empty if it is in order."""
    if not expected.travels:
        return f"holds {len(parcel.models)} models; in this method none is uploaded" if parcel.models else ""
    if thinning := expected.thinning:
        return thinning.misfit(parcel.models)
    if set(parcel.models) != {"model"}:
        return f"holds {len(parcel.models)} models by other names than 'model'; right is that one"
    return parcel_problem(parcel.models["model"], slots(expected.layout), kinds(expected.layout, expected.transport))


def extras_problem(parcel: Parcel, expected: Expected) -> str:
    """Why what objectives upload beside the model is refused; empty if it is in order."""
    if lacks := sorted(set(expected.beside) - set(parcel.beside)):
        return f"uploads no {', '.join(lacks)}"
    for name, value in parcel.beside.items():
        if why := extra_problem(value, expected.beside.get(name)):
            return f"{name[:80]} {why}"
    return ""


def read_upload(parcel: Parcel, expected: Expected) -> Tensor:
    """The model ``[P]`` in an upload without `upload_problem`; where none is uploaded, the one the client was sent."""
    if not expected.travels:
        return expected.own
    thinning = expected.thinning
    return (
        thinning.restore(parcel.models, expected.own)
        if thinning
        else tensors_to_row(parcel.models["model"], expected.layout)
    )


def numbers_problem(parcel: Parcel, expected: Expected) -> str:
    """Why the numbers beside the model are refused; empty if they are in order."""
    given = dict(parcel.report)
    choice = given.pop("label", None)
    if lacks := sorted(set(expected.declared) - set(given)):
        return f"reports no {', '.join(lacks)}"
    for name, value in given.items():
        if why := report_problem(value, expected.declared.get(name), expected.shared):
            return f"{name[:80]} {why}"
    if (choice is not None) != bool(expected.choices):
        return "chooses a cluster in a method where clients do not, or does not where they do"
    if choice is None:
        return ""
    right = choice.shape == (1,) and choice.dtype == torch.int64 and 0 <= int(choice[0]) < expected.choices
    return "" if right else f"chooses no cluster from 0 to {expected.choices - 1}"
