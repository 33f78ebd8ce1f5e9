"""What clients upload beside their models: the value, its checks, and what the server shares of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Blend, Bounded, Offer, Simplex, State, Targets
from fedwca.engine.device_copy import to_host_async
from fedwca.engine.interface import ClientWork
from fedwca.errors import Diverged, FedwcaError

COLLECTED = "collected."
"""How a server's state calls what clients uploaded beside their models."""


@dataclass(frozen=True)
class Upload:
    """What one client's round leaves beside its model in the bank."""

    weights: Tensor
    """``[R]``: its start as a mixture of the server's rows (v_k of eq. 8)."""
    report: Mapping[str, Tensor]
    label: Tensor | None
    targets: Targets
    """Stays with the client; only the metrics look at it."""
    seconds: Mapping[str, float]
    passes: int
    """Evaluation passes over the client's images."""
    collected: Mapping[str, Tensor] = field(default_factory=dict)
    """What objectives upload that is neither a model nor a report."""


def make_uploads(
    blend: Blend, work: ClientWork, targets: Sequence[Targets], collected: Sequence[Mapping[str, Tensor]]
) -> list[Upload]:
    """One upload for each of the clients that worked together; their time is shared out evenly.

    Values may be read once the engine has come to the end of its part of the round.
    """
    clients = len(targets)
    weights = to_host_async((blend.start.double()[:, None] @ work.weights)[:, 0]).unbind()
    report = {name: to_host_async(value).split(1) for name, value in blend.report.items()}
    labels = None if blend.labels is None else to_host_async(blend.labels).split(1)
    seconds = work.seconds.shared(clients)
    return [
        Upload(
            weights[i],
            {name: value[i] for name, value in report.items()},
            None if labels is None else labels[i],
            targets[i],
            seconds,
            work.passes,
            collected[i],
        )
        for i in range(clients)
    ]


def shared_uploads(objectives: Sequence[Objective], state: State) -> dict[str, Tensor]:
    """What every client is sent beside models, from what clients uploaded last."""
    shared: dict[str, Tensor] = {}
    for objective in objectives:
        prefix = f"{COLLECTED}{objective.name}."
        own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        shared |= objective.pool(own) if own else {}
    return shared


def remember_uploads(state: State, uploads: Mapping[int, Mapping[str, Tensor]], clients: int) -> dict[str, Tensor]:
    """What each client uploaded last beside its model ``[K, …]``, as entries of a state; zeros where it never did.

    Args:
        state: the server's, before.
        uploads: by client, what its objectives uploaded, by ``<objective>.<name>``.
        clients: K.

    Raises:
        FedwcaError: values are not finite, or two clients' have different names or shapes.
    """
    found: dict[str, Tensor] = {}
    first, model = next(iter(uploads.items()))
    for client, upload in uploads.items():
        for name in sorted(upload.keys() | model.keys()):
            value, like = upload.get(name), model.get(name)
            if value is None or like is None or value.shape != like.shape:
                shapes = [None if v is None else tuple(v.shape) for v in (value, like)]
                raise FedwcaError(f"client {client} uploaded {name} of shape {shapes[0]}, client {first} {shapes[1]}")
            if not bool(torch.isfinite(value).all()):
                raise FedwcaError(f"client {client} uploaded {name} with values that are not finite")
            before = state.get(COLLECTED + name, value.new_zeros(clients, *value.shape))
            found.setdefault(COLLECTED + name, before.clone())[client] = value
    return found


def extra_problem(value: Tensor, declared: Bounded | None) -> str:
    """Why an upload that is no model does not fit its declaration; empty if it does.

    >>> extra_problem(torch.tensor([[0.0, 2.0]]), Bounded((1, 2), 1.0))
    'has a vector of length 2; right is at most 1'
    """
    if declared is None:
        return "is declared by no objective"
    if tuple(value.shape) != declared.shape or value.dtype != torch.float32:
        return f"is {value.dtype} of shape {tuple(value.shape)}; right is torch.float32 of {declared.shape}"
    if not bool(torch.isfinite(value).all()):
        return "has values that are not finite"
    longest = float(value.norm(dim=-1).max())
    return (
        ""
        if longest <= declared.norm * (1 + 1e-4)
        else (f"has a vector of length {longest:.3g}; right is at most {declared.norm:.3g}")
    )


def check_uploads(bank: Tensor, declared: Mapping[str, Simplex], uploads: Mapping[int, Upload], offer: Offer) -> None:
    """Refuse models that are not finite and reports that are not what the aggregator declares."""
    here = torch.tensor(list(uploads), device=bank.device)
    # Some rows at a time: what is asked of all at once would take as much memory as the bank again.
    finite = torch.cat([torch.isfinite(bank[some]).all(1) for some in here.split(32)])
    if not bool(finite.all()):
        client = int(here[~finite][0])
        raise Diverged(f"client {client}'s model has values that are not finite; a lower --lr may help")
    for client, upload in uploads.items():
        if lacks := sorted(set(declared) - set(upload.report)):
            raise FedwcaError(f"client {client} reported no {', '.join(lacks)}, which the aggregator declares")
        for name, value in upload.report.items():
            problem = report_problem(value[0], declared.get(name), offer.shared.shape[0])
            if problem:
                raise FedwcaError(f"client {client} reported {name} {value[0].tolist()}: {problem}")


def report_problem(value: Tensor, declared: Simplex | None, shared: int) -> str:
    """Why a reported vector does not fit its declaration; empty if it does.

    >>> report_problem(torch.tensor([0.5, 0.6]), Simplex(2), 0)
    'must sum to 1, not 1.1'
    """
    if declared is None:
        return "the aggregator declares no such report"
    size = shared if declared.size is None else declared.size
    if value.shape != (size,):
        return f"must have shape ({size},), not {tuple(value.shape)}"
    if not bool(torch.isfinite(value).all()) or bool((value < 0).any()):
        return "must be finite and not negative"
    total = float(value.sum())
    return "" if abs(total - 1) < 1e-4 else f"must sum to 1, not {total:.3g}"
