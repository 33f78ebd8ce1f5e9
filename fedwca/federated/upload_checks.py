"""What clients upload besides their models, and all checks of uploads, for simulation and deployment alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedwca.core.component_answers import ROUNDING, describe_value
from fedwca.core.messages import Bounded, Simplex
from fedwca.core.printable import printable
from fedwca.engine.device_copy import to_device
from fedwca.errors import Diverged, FedwcaError


@dataclass(frozen=True, kw_only=True)
class Upload:
    """What one client uploads besides its model."""

    report: Mapping[str, Tensor] = field(default_factory=dict)
    """What the aggregator declares, by name, one vector each."""
    label: Tensor | None = None
    """The cluster it chooses, int64 ``[1]``; None where clients do not choose."""
    collected: Mapping[str, Tensor] = field(default_factory=dict)
    """What objectives upload that is neither a model nor a report, by ``<objective>.<name>``."""


@dataclass(frozen=True)
class ExpectedUpload:
    """What the server accepts from a client besides its model."""

    reports: Mapping[str, Simplex | Bounded] = field(default_factory=dict)
    shared: int = 0
    """Number of shared models that were sent, which is the length of a report that declares no size."""
    clusters: int = 0
    """Number of clusters the client may choose from; 0: it does not choose."""
    collected: Mapping[str, Bounded] = field(default_factory=dict)
    undeclared: bool = False
    """Whether values that no objective declares are accepted, as in a simulation, where no client is malicious."""
    dtype: torch.dtype = torch.float32
    """Type of the collected values."""
    aggregator: str = ""
    """Name of the aggregator that declares the reports, for messages."""


def check_uploads(
    bank: Tensor,
    uploads: Mapping[int, Upload],
    expected: ExpectedUpload,
    advise: Callable[[int], str] = lambda client: advise_lower("--lr"),
) -> None:
    """Refuse a round in which an upload is invalid.

    Args:
        bank: trained models ``[K, P]``.
        uploads: by client.
        expected: what each client should upload.
        advise: says what may help a client whose values are not finite.

    Raises:
        Diverged: a client's model, or what it sends besides it, has values that are not finite.
        FedwcaError: see `upload_problem`; the message names the client.
    """
    clients = to_device(list(uploads), bank.device)
    # One row after another: a selection of several rows is a copy of them.
    finite = torch.cat([finite_models(bank[client : client + 1]) for client in uploads])
    if not bool(finite.all()):
        client = int(clients[~finite][0])
        raise Diverged(f"client {client}'s model {model_problem(bank[client])}; {advise(client)}")
    for client, upload in uploads.items():
        if problem := upload_problem(upload, expected):
            message = f"client {client}'s upload is refused: {problem}"
            raise FedwcaError(message) if finite_upload(upload) else Diverged(f"{message}; {advise(client)}")


def advise_lower(option: str) -> str:
    """What most often helps where values are not finite: a lower value of a command-line option."""
    return f"a lower {option} may help"


def finite_models(rows: Tensor) -> Tensor:
    """Which models ``[N, P]`` have only finite values ``[N]`` bool."""
    # Both extremes are NaN if a value is. `isfinite` of all values would read and write each of them several times.
    return rows.amin(1).isfinite() & rows.amax(1).isfinite()


def finite_upload(upload: Upload) -> bool:
    """Whether what a client sends besides its model has only finite values."""
    return all(bool(torch.isfinite(value).all()) for value in (*upload.report.values(), *upload.collected.values()))


def model_problem(row: Tensor) -> str:
    """Why a model ``[P]`` is refused; empty if it is valid."""
    return "" if bool(finite_models(row[None])) else "has values that are not finite"


def upload_problem(upload: Upload, expected: ExpectedUpload) -> str:
    """Why what a client sent besides its model is refused; empty if it is valid."""
    if missing := sorted(set(expected.collected) - set(upload.collected)):
        return f"uploads no {', '.join(missing)}"
    for name, value in upload.collected.items():
        if name not in expected.collected and expected.undeclared:
            continue
        if problem := describe_misfit(value, expected.collected.get(name), expected.dtype):
            return f"{printable(name[:80])} {problem}"
    problem = _aggregator_problem(upload, expected)
    return f"aggregator {expected.aggregator!r}: {problem}" if problem and expected.aggregator else problem


def _aggregator_problem(upload: Upload, expected: ExpectedUpload) -> str:
    """Why the reports or the chosen cluster are refused; empty if they are valid."""
    if missing := sorted(set(expected.reports) - set(upload.report)):
        return f"reports no {', '.join(missing)}, which the aggregator declares"
    for name, value in upload.report.items():
        if problem := report_problem(value, expected.reports.get(name), expected.shared):
            return f"{printable(name[:80])} {problem}"
    return choice_problem(upload.label, expected.clusters)


def tensor_problem(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> str:
    """Why a tensor has not the shape and type it should, or values that are not finite; empty if it is valid."""
    if tuple(value.shape) != shape or value.dtype != dtype:
        return f"is {describe_value(value)}; right is {dtype} of {shape}"
    return "" if bool(torch.isfinite(value).all()) else "has values that are not finite"


def describe_misfit(value: Tensor, declared: Bounded | None, dtype: torch.dtype = torch.float32) -> str:
    """Why an upload that is no model does not fit its declaration; empty if it does.

    >>> describe_misfit(torch.tensor([[0.0, 2.0]]), Bounded((1, 2), 1.0))
    'has a vector of length 2; right is at most 1'
    """
    if declared is None:
        return "is declared by no objective"
    if problem := tensor_problem(value, declared.shape, dtype):
        return problem
    norm = float(value.norm(dim=-1).max())
    if norm <= declared.max_norm * (1 + ROUNDING):
        return ""
    return f"has a vector of length {norm:.3g}; right is at most {declared.max_norm:.3g}"


def report_problem(value: Tensor, declared: Simplex | Bounded | None, shared: int) -> str:
    """Why a reported value does not fit its declaration; empty if it does.

    >>> report_problem(torch.tensor([0.5, 0.75]), Simplex(2), 0)
    '[0.5, 0.75] must sum to 1, not 1.25'
    """
    if declared is None:
        return "is no report that the aggregator declares"
    if value.dtype not in (torch.float32, torch.float64):
        return f"is {value.dtype}; right is torch.float32"
    if isinstance(declared, Bounded):
        return describe_misfit(value, declared, value.dtype)
    size = shared if declared.size is None else declared.size
    if value.shape != (size,):
        return f"must have shape ({size},), not {tuple(value.shape)}"
    if not bool(torch.isfinite(value).all()) or bool((value < 0).any()):
        return f"{value.tolist()} must be finite and not negative"
    total = float(value.sum())
    return "" if abs(total - 1) < ROUNDING else f"{value.tolist()} must sum to 1, not {total:.3g}"


def choice_problem(label: Tensor | None, clusters: int) -> str:
    """Why a client's choice among that many clusters is refused; empty if it is valid.

    >>> choice_problem(torch.tensor([2]), 2)
    'chooses no cluster from 0 to 1'
    """
    if (label is not None) != bool(clusters):
        return "chooses a cluster in a method where clients do not, or does not where they do"
    if label is None:
        return ""
    valid = label.shape == (1,) and label.dtype == torch.int64 and 0 <= int(label[0]) < clusters
    return "" if valid else f"chooses no cluster from 0 to {clusters - 1}"
