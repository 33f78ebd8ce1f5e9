"""What clients upload beside their models, and every check of an upload; simulation and deployment make the same."""

from __future__ import annotations

from collections.abc import Mapping
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
    """What one client sends beside its model."""

    report: Mapping[str, Tensor] = field(default_factory=dict)
    """What the aggregator declares, one vector each."""
    label: Tensor | None = None
    """The cluster it chooses, int64 ``[1]``; None where clients do not choose."""
    collected: Mapping[str, Tensor] = field(default_factory=dict)
    """What objectives upload that is neither a model nor a report, by ``<objective>.<name>``."""


@dataclass(frozen=True)
class ExpectedUpload:
    """What the server takes from a client beside its model."""

    reports: Mapping[str, Simplex | Bounded] = field(default_factory=dict)
    shared: int = 0
    """Shared models that were sent: the length of a report that declares none."""
    clusters: int = 0
    """Clusters it may choose from; 0: it does not choose."""
    collected: Mapping[str, Bounded] = field(default_factory=dict)
    undeclared: bool = False
    """Whether values are taken that no objective declares: in a simulation, where nobody lies."""
    dtype: torch.dtype = torch.float32
    """Of what is collected."""


def check_uploads(bank: Tensor, uploads: Mapping[int, Upload], expected: ExpectedUpload, option: str = "--lr") -> None:
    """Refuse a round in which an upload is not in order.

    Args:
        bank: trained models ``[K, P]``.
        uploads: by client.
        expected: of each client.
        option: sets the learning rate that they were made with.

    Raises:
        Diverged: a client's model, or what it sends beside it, has values that are not finite.
        FedwcaError: see `upload_problem`; says which client.
    """
    here = to_device(list(uploads), bank.device)
    # Some rows at a time: what is asked of all at once would take as much memory as the bank again.
    finite = torch.cat([finite_models(bank[some]) for some in here.split(32)])
    if not bool(finite.all()):
        client = int(here[~finite][0])
        raise Diverged(f"client {client}'s model {model_problem(bank[client])}; a lower {option} may help")
    for client, upload in uploads.items():
        if problem := upload_problem(upload, expected):
            refused = f"client {client}'s upload is refused: {problem}"
            raise FedwcaError(refused) if finite_upload(upload) else Diverged(f"{refused}; a lower {option} may help")


def finite_models(rows: Tensor) -> Tensor:
    """Which models ``[N, P]`` have finite values alone ``[N]`` bool."""
    return torch.isfinite(rows).all(1)


def finite_upload(upload: Upload) -> bool:
    """Whether what a client sends beside its model has finite values alone."""
    return all(bool(torch.isfinite(value).all()) for value in (*upload.report.values(), *upload.collected.values()))


def model_problem(row: Tensor) -> str:
    """Why a model ``[P]`` is refused; empty if it is in order."""
    return "" if bool(finite_models(row[None])) else "has values that are not finite"


def upload_problem(upload: Upload, expected: ExpectedUpload) -> str:
    """Why what a client sent beside its model is refused; empty if it is in order."""
    if lacks := sorted(set(expected.collected) - set(upload.collected)):
        return f"uploads no {', '.join(lacks)}"
    for name, value in upload.collected.items():
        if name not in expected.collected and expected.undeclared:
            continue
        if why := describe_misfit(value, expected.collected.get(name), expected.dtype):
            return f"{printable(name[:80])} {why}"
    if lacks := sorted(set(expected.reports) - set(upload.report)):
        return f"reports no {', '.join(lacks)}, which the aggregator declares"
    for name, value in upload.report.items():
        if why := report_problem(value, expected.reports.get(name), expected.shared):
            return f"{printable(name[:80])} {why}"
    return choice_problem(upload.label, expected.clusters)


def tensor_problem(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> str:
    """Why a tensor has not the shape and type it should, or values that are not finite; empty if it is in order."""
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
    if why := tensor_problem(value, declared.shape, dtype):
        return why
    longest = float(value.norm(dim=-1).max())
    if longest <= declared.norm * (1 + ROUNDING):
        return ""
    return f"has a vector of length {longest:.3g}; right is at most {declared.norm:.3g}"


def report_problem(value: Tensor, declared: Simplex | Bounded | None, shared: int) -> str:
    """Why a reported value does not fit its declaration; empty if it does.

    >>> report_problem(torch.tensor([0.5, 0.75]), Simplex(2), 0)
    '[0.5, 0.75] must sum to 1, not 1.25'
    """
    if declared is None:
        return "the aggregator declares no such report"
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
    """Why a client's choice among that many clusters is refused; empty if it is in order.

    >>> choice_problem(torch.tensor([2]), 2)
    'chooses no cluster from 0 to 1'
    """
    if (label is not None) != bool(clusters):
        return "chooses a cluster in a method where clients do not, or does not where they do"
    if label is None:
        return ""
    right = label.shape == (1,) and label.dtype == torch.int64 and 0 <= int(label[0]) < clusters
    return "" if right else f"chooses no cluster from 0 to {clusters - 1}"
