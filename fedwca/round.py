"""One communication round, read top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.engine.bank import mix
from fedwca.engine.client import Desk, Training
from fedwca.engine.loop import Loop
from fedwca.engine.randomness import Keys
from fedwca.engine.signature import BankSignatures
from fedwca.errors import Diverged, FedwcaError
from fedwca.kinds import Aggregator, Clusterer, Objective, PseudoLabeler
from fedwca.types import Blend, Offer, Simplex, State, Targets


@dataclass(frozen=True)
class Method:
    """A composition of components: what one row of a table is."""

    name: str
    label: str
    aggregator: Aggregator
    pseudo_labeler: PseudoLabeler
    objectives: tuple[Objective, ...]
    clusterer: Clusterer | None = None
    """Only where the aggregator's partition is given from outside."""


@dataclass(frozen=True)
class Server:
    """What the server holds between rounds."""

    rows: Tensor
    """``[R, P]``; one row, the source model, before round 0."""
    state: State
    """What the aggregator remembers; empty before round 0."""
    source: Tensor
    """``[P]``, the model everybody started from."""


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


@dataclass(frozen=True)
class Outcome:
    """What happened in a round."""

    labels: Tensor
    """Cluster of each client ``[K]``."""
    offer: Offer
    uploads: Sequence[Upload]

    @property
    def weights(self) -> Tensor:
        """Starts as mixtures of the server's rows ``[K, R]``."""
        return torch.stack([upload.weights for upload in self.uploads])

    @property
    def report(self) -> dict[str, Tensor]:
        """What clients reported, stacked: ``{name: [K, …]}``."""
        names = self.uploads[0].report
        return {name: torch.cat([upload.report[name] for upload in self.uploads]) for name in names}


def begin(source: Tensor) -> Server:
    """The server before round 0: it owns the source model ``[P]`` and nothing else."""
    return Server(source[None], {}, source)


def play(
    round: int,
    server: Server,
    method: Method,
    engine: Loop,
    training: Training,
    keys: Keys,
    domains: Tensor,
    done: Callable[[int], None] = lambda client: None,
) -> tuple[Server, Outcome]:
    """One round: send, adapt at the clients, group, average, remember.

    Args:
        round: r, counted from 0.
        server: what the server holds.
        method: the components.
        engine: owns the clients' images and the bank.
        training: epochs and optimiser.
        keys: where random numbers come from.
        domains: true domains ``[K]``, handed on to oracles alone.
        done: called after each client.

    Raises:
        Diverged: a client's model has values that are not finite.
        FedwcaError: a client's report does not fit what the aggregator declares.
    """
    aggregator, clients = method.aggregator, len(engine.images)

    def adapt(client: int, desk: Desk) -> Upload:
        with desk.clock("evidence"):
            blend = aggregator.blend(round, desk) if round else Blend(desk.own)

        def key(purpose: str) -> int:
            return keys(round, client, purpose)

        targets = desk.train(blend, method.pseudo_labeler, method.objectives, training, key)
        weights = (blend.start.double() @ desk.received.weights)[0]
        return Upload(weights, blend.report, blend.labels, targets, desk.seconds, desk.passes)

    offer = aggregator.offer(server.state, round, server.rows) if round else source_for(clients)
    uploads = engine.run(offer, server.rows, adapt, done=done)
    check(engine.bank, aggregator.reports if round else {}, uploads, offer)
    labels = partition(round, server, method, engine, uploads, domains)
    present = torch.ones(clients, dtype=torch.bool)
    previous = server.rows.shape[0]
    gather = aggregator.gather(server.state, labels, engine.sizes, present, previous)
    rows = mix(gather[:, previous:], engine.bank) + mix(gather[:, :previous], server.rows)
    outcome = Outcome(labels, offer, uploads)
    state = aggregator.learn(server.state, labels, outcome.report, present)
    return Server(rows, state, server.source), outcome


def source_for(clients: int) -> Offer:
    """Round 0: everybody is sent the server's only row."""
    return Offer(torch.ones(clients, 1, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64))


def partition(
    round: int, server: Server, method: Method, engine: Loop, uploads: Sequence[Upload], domains: Tensor
) -> Tensor:
    """Cluster of each client ``[K]``: by the clusterer once after round 0, or as the aggregator's partition says."""
    clients = len(engine.images)
    match method.aggregator.partition:
        case "one":
            return torch.zeros(clients, dtype=torch.int64)
        case "each":
            return torch.arange(clients)
        case "self" if round:
            return torch.cat([upload.label for upload in uploads if upload.label is not None]).cpu()
        case _ if round:
            return server.state["labels"]
        case _:
            assert method.clusterer is not None
            truth = domains if method.clusterer.oracle else None
            return method.clusterer(BankSignatures(engine.bank, engine.layout, server.source, truth)).cpu()


def check(bank: Tensor, declared: Mapping[str, Simplex], uploads: Sequence[Upload], offer: Offer) -> None:
    """Refuse models that are not finite and reports that are not what the aggregator declares."""
    finite = torch.isfinite(bank).all(1)
    if not bool(finite.all()):
        client = int((~finite).nonzero()[0])
        raise Diverged(f"client {client}'s model has values that are not finite; a lower --lr may help")
    for client, upload in enumerate(uploads):
        if lacks := sorted(set(declared) - set(upload.report)):
            raise FedwcaError(f"client {client} reported no {', '.join(lacks)}, which the aggregator declares")
        for name, value in upload.report.items():
            problem = refuse(value[0], declared.get(name), offer.shared.shape[0])
            if problem:
                raise FedwcaError(f"client {client} reported {name} {value[0].tolist()}: {problem}")


def refuse(value: Tensor, declared: Simplex | None, shared: int) -> str:
    """Why a reported vector does not fit its declaration; empty if it does.

    >>> refuse(torch.tensor([0.5, 0.6]), Simplex(2), 0)
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
