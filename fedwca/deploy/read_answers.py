"""Checks a client's answer to its task and reads the model and the upload from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedwca.core.messages import Bounded, Simplex
from fedwca.deploy.compression import TopKCompressor
from fedwca.deploy.half_precision import Transport, wire_types
from fedwca.deploy.wire_messages import MOMENTS, Parcel, tensors_problem, tensors_to_row
from fedwca.engine.parameter_layout import Layout
from fedwca.federated.upload_checks import ExpectedUpload, Upload, model_problem, upload_problem

LARGEST = 1e15
"""Largest accepted BatchNorm statistic, whose square is finite in float32. Rule ``norm_bound`` sets tighter bounds."""
LARGEST_GROWTH = 1e3
"""Largest accepted length of a model's trained parameters, in lengths of the model that was sent, plus 1."""
MAX_SAMPLES = 10_000_000
"""Largest accepted number of training images of a client."""


@dataclass(frozen=True)
class ReceivedAnswer:
    """A client's accepted answer in a round."""

    model: Tensor
    """The client's model ``[P]``; if none is uploaded, the model that the client was sent."""
    start: Tensor
    """The model ``[P]`` that was sent and that its update is measured from."""
    upload: Upload
    samples: int
    """Number of training images that it reports."""
    trusted: float = 1.0
    """How far its labels are trusted, 0 to 1, as the client measured; 1 if it was not asked."""
    moments: Tensor | None = None
    """The moments it is grouped by ``[F]``, if the clusterer reads moments and this is its first answer."""


@dataclass(frozen=True)
class ExpectedAnswer:
    """What the server accepts from one client in one round."""

    round: int
    token: str
    """Random token of the task; an answer with another token belongs to another task."""
    layout: Layout
    transport: Transport
    share: float | None
    """Share of an update's entries that is uploaded; None: the model is uploaded whole."""
    sends_models: bool
    """Whether a model is uploaded at all."""
    starts: Sequence[Tensor]
    """Models ``[P]`` that the update may be measured from: the source model in a client's first round; all clusters'
    models if clients choose a cluster; else the first model that was sent."""
    upload: ExpectedUpload
    """What is expected beside the model."""
    samples: int = 0
    """Number of training images the client reported before; 0: none yet."""
    asks_trust: bool = False
    """Whether the client must report how far its labels are trusted."""

    @property
    def compressor(self) -> TopKCompressor | None:
        """Compressor of the model; None: the model is uploaded whole."""
        return None if self.share is None else TopKCompressor(self.layout, self.share, self.transport)


def read_answer(parcel: Parcel, expected: ExpectedAnswer) -> ReceivedAnswer | str:
    """Return what a client's message holds, or why it is refused."""
    if problem := (
        _task_problem(parcel, expected)
        or _models_problem(parcel, expected)
        or _samples_problem(parcel, expected)
        or _trust_problem(parcel, expected)
    ):
        return problem
    upload = _read_upload(parcel)
    # Checked before the model is read: the chosen cluster says which model the update is measured from.
    if problem := upload_problem(upload, expected.upload):
        return problem
    start = expected.starts[int(parcel.report["label"]) if expected.upload.clusters else 0]
    model = _read_model(parcel, start, expected)
    if problem := (
        model_problem(model) or weights_problem(model, start, expected) or statistics_problem(model, expected)
    ):
        return problem
    report = {name: _read_report(value, expected.upload.reports[name]) for name, value in upload.report.items()}
    collected = dict(upload.collected)
    moments = collected.pop(MOMENTS, None)
    upload = replace(upload, report=report, collected=collected)
    trusted = float(parcel.notes["trusted"]) if expected.asks_trust else 1.0
    return ReceivedAnswer(model, start, upload, int(parcel.notes["samples"]), trusted, moments)


def weights_problem(model: Tensor, start: Tensor, expected: ExpectedAnswer) -> str:
    """Return why the trained parameters of a model ``[P]`` are refused; empty if they are accepted.

    No training makes a model so long, and the mean with it would be of no use to anybody, however often it is tried.
    """
    before, after = (
        float(torch.linalg.vector_norm(row[: expected.layout.trained], dtype=torch.float64)) for row in (start, model)
    )
    growth = after / (1 + before)
    return f"has weights {growth:.3g} times as long as those it was sent" if growth > LARGEST_GROWTH else ""


def statistics_problem(model: Tensor, expected: ExpectedAnswer) -> str:
    """Return why the BatchNorm statistics of a model ``[P]`` are refused; empty if they are accepted.

    No images have such statistics, and they would make the mean unusable.
    """
    statistics = model[expected.layout.trained :]
    if bool((statistics.abs() > LARGEST).any()):
        return f"has BatchNorm statistics beyond {LARGEST:g}"
    for mean, variance in expected.layout.norms:
        # With pooled statistics, squares of means are part of the variances.
        if bool((mean.of(model).abs() > LARGEST**0.5).any()):
            return f"{mean.name} has means beyond {LARGEST**0.5:.3g}"
        if bool((variance.of(model) < 0).any()):
            return f"{variance.name} has variances below 0"
    return ""


def _read_report(value: Tensor, declared: Simplex | Bounded) -> Tensor:
    """Return a reported value in double precision; weights sum to 1 exactly, since the server multiplies them."""
    value = value.double()
    return value / value.sum() if isinstance(declared, Simplex) else value


def _task_problem(parcel: Parcel, expected: ExpectedAnswer) -> str:
    """Return why the message is no answer to the client's task; empty if it is one."""
    if parcel.kind != "upload":
        return f"is a {repr(parcel.kind)[:80]}, not an upload"
    if parcel.round != expected.round:
        return f"is for round {parcel.round}; this is round {expected.round}"
    if parcel.notes.get("token") != expected.token:
        return "answers another task than the one it was sent"
    return ""


def _models_problem(parcel: Parcel, expected: ExpectedAnswer) -> str:
    """Return why the uploaded tensors are refused; empty if they are the expected model."""
    if not expected.sends_models:
        return f"holds {len(parcel.models)} models; in this method none is uploaded" if parcel.models else ""
    if compressor := expected.compressor:
        return compressor.models_problem(parcel.models)
    if set(parcel.models) != {"model"}:
        return f"holds {len(parcel.models)} models by other names than 'model'; right is that one"
    types = wire_types(expected.layout, expected.transport)
    return tensors_problem(parcel.models["model"], expected.layout.slots, types)


def _samples_problem(parcel: Parcel, expected: ExpectedAnswer) -> str:
    """Return why the number of training images is refused; empty if it is accepted."""
    samples = parcel.notes.get("samples")
    if not isinstance(samples, int) or not 1 <= samples <= MAX_SAMPLES:
        return f"names {repr(samples)[:80]} training images; right is 1 to {MAX_SAMPLES}"
    if expected.samples and samples != expected.samples:
        return f"names {samples} training images after {expected.samples} in an earlier round"
    return ""


def _trust_problem(parcel: Parcel, expected: ExpectedAnswer) -> str:
    """Return why the reported trust in the client's labels is refused; empty if it is accepted."""
    trust = parcel.notes.get("trusted")
    if expected.asks_trust and not (isinstance(trust, int | float) and 0 <= trust <= 1):
        return f"says {repr(trust)[:80]} of how far its labels are trusted; right is a number from 0 to 1"
    return ""


def _read_model(parcel: Parcel, start: Tensor, expected: ExpectedAnswer) -> Tensor:
    """Return the client's model ``[P]``, from an update of the model ``start`` if updates are uploaded."""
    if not expected.sends_models:
        return start
    if compressor := expected.compressor:
        return compressor.decompress(parcel.models, start)
    return tensors_to_row(parcel.models["model"], expected.layout)


def _read_upload(parcel: Parcel) -> Upload:
    report = dict(parcel.report)
    label = report.pop("label", None)
    return Upload(report=report, label=label, collected=parcel.beside)
