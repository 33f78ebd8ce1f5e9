"""A client's answer to its task: from the message to a model and an upload, which `fedwca.federated` then checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from fedwca.deploy.compression import TopKCompressor
from fedwca.deploy.half_precision import Transport, wire_types
from fedwca.deploy.wire_messages import MOMENTS, Parcel, tensors_problem, tensors_to_row
from fedwca.engine.parameter_layout import Layout
from fedwca.federated.upload_checks import ExpectedUpload, Upload, model_problem, upload_problem

LARGEST = 1e15
"""Of BatchNorm's statistics: their squares are still numbers. Closer bounds are the rule ``norm_bound``'s."""


@dataclass(frozen=True)
class ReceivedAnswer:
    """What the server has of a client in a round, once its message is in order."""

    model: Tensor
    """``[P]``; where none is uploaded, the one the client was sent."""
    start: Tensor
    """The model ``[P]`` that was sent and that its update is measured from."""
    upload: Upload
    samples: int
    """Training images it names."""
    trusted: float = 1.0
    """How far its labels are trusted, 0 to 1, as it found."""
    moments: Tensor | None = None
    """What it is grouped by ``[F]``, where a clusterer reads that."""


@dataclass(frozen=True)
class ExpectedAnswer:
    """What the server takes from one client in one round."""

    round: int
    token: str
    """Drawn anew for every task; an answer without it is to another task."""
    layout: Layout
    transport: Transport
    share: float | None
    """Of an update's entries that travel; None: the model travels whole."""
    travels: bool
    """Whether a model is uploaded at all."""
    starts: Sequence[Tensor]
    """Models ``[P]`` that an update may be measured from: in a first round the source model, where clients choose a
    cluster the models of all, else the first that was sent."""
    upload: ExpectedUpload
    """What comes beside the model."""
    samples: int = 0
    """Training images it named before; 0: none yet."""
    asks_trust: bool = False
    """Whether it is to say how far its labels are trusted."""
    max_samples: int = 10_000_000
    """More training images than this are not believed."""

    @property
    def compressor(self) -> TopKCompressor | None:
        """How the model is compressed; None: it travels whole."""
        return None if self.share is None else TopKCompressor(self.layout, self.share, self.transport)


def answer_problem(parcel: Parcel, expected: ExpectedAnswer) -> str:
    """Why an answer is refused, in a sentence; empty if it is in order."""
    if parcel.kind != "upload":
        return f"is a {repr(parcel.kind)[:80]}, not an upload"
    if parcel.round != expected.round:
        return f"is for round {parcel.round}; this is round {expected.round}"
    if parcel.notes.get("token") != expected.token:
        return "answers another task than the one it was sent"
    return (
        _models_problem(parcel, expected)
        or _samples_problem(parcel, expected)
        or _trust_problem(parcel, expected)
        # The cluster it chooses says what its update is measured from.
        or upload_problem(_read_upload(parcel), expected.upload)
        or model_problem(_read_model(parcel, expected))
        or statistics_problem(_read_model(parcel, expected), expected)
    )


def statistics_problem(model: Tensor, expected: ExpectedAnswer) -> str:
    """Why BatchNorm statistics of a model ``[P]`` are refused: no images have them, and nobody could use the mean."""
    statistics = model[expected.layout.trained :]
    if bool((statistics.abs() > LARGEST).any()):
        return f"has BatchNorm statistics beyond {LARGEST:g}"
    for _, variance in expected.layout.norms:
        if bool((variance.of(model) < 0).any()):
            return f"{variance.name} has variances below 0"
    return ""


def read_answer(parcel: Parcel, expected: ExpectedAnswer) -> ReceivedAnswer:
    """What is in a message without `answer_problem`."""
    upload = _read_upload(parcel)
    report = {name: value.double() for name, value in upload.report.items()}
    collected = dict(upload.collected)
    moments = collected.pop(MOMENTS, None)
    upload = replace(upload, report=report, collected=collected)
    trusted = float(parcel.notes["trusted"]) if expected.asks_trust else 1.0
    model, start = _read_model(parcel, expected), _find_start(parcel, expected)
    return ReceivedAnswer(model, start, upload, int(parcel.notes["samples"]), trusted, moments)


def _models_problem(parcel: Parcel, expected: ExpectedAnswer) -> str:
    """Why the named tensors are no model; empty if they are."""
    if not expected.travels:
        return f"holds {len(parcel.models)} models; in this method none is uploaded" if parcel.models else ""
    if compressor := expected.compressor:
        return compressor.models_problem(parcel.models)
    if set(parcel.models) != {"model"}:
        return f"holds {len(parcel.models)} models by other names than 'model'; right is that one"
    types = wire_types(expected.layout, expected.transport)
    return tensors_problem(parcel.models["model"], expected.layout.slots, types)


def _samples_problem(parcel: Parcel, expected: ExpectedAnswer) -> str:
    """Why the number of training images is refused; empty if it is in order."""
    samples = parcel.notes.get("samples")
    if not isinstance(samples, int) or not 1 <= samples <= expected.max_samples:
        return f"names {repr(samples)[:80]} training images; right is 1 to {expected.max_samples}"
    if expected.samples and samples != expected.samples:
        return f"names {samples} training images after {expected.samples} in an earlier round"
    return ""


def _trust_problem(parcel: Parcel, expected: ExpectedAnswer) -> str:
    """Why what it says of its labels is refused; empty if it is in order."""
    said = parcel.notes.get("trusted")
    if expected.asks_trust and not (isinstance(said, int | float) and 0 <= said <= 1):
        return f"says {repr(said)[:80]} of how far its labels are trusted; right is a number from 0 to 1"
    return ""


def _find_start(parcel: Parcel, expected: ExpectedAnswer) -> Tensor:
    """The model that the update is measured from, of an upload that is in order."""
    return expected.starts[int(parcel.report["label"]) if expected.upload.clusters else 0]


def _read_model(parcel: Parcel, expected: ExpectedAnswer) -> Tensor:
    start = _find_start(parcel, expected)
    if not expected.travels:
        return start
    if compressor := expected.compressor:
        return compressor.decompress(parcel.models, start)
    return tensors_to_row(parcel.models["model"], expected.layout)


def _read_upload(parcel: Parcel) -> Upload:
    report = dict(parcel.report)
    label = report.pop("label", None)
    return Upload(report=report, label=label, collected=parcel.beside)
