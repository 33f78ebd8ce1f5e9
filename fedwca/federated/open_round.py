"""A round that the server has opened: what it sends to whom, and what clients do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedwca.core.component_answers import check_tensors
from fedwca.core.grouping import TRUSTED
from fedwca.core.messages import Blend, Offer, Targets
from fedwca.core.training_settings import Training
from fedwca.engine.client_task import Task
from fedwca.engine.interface import ClientWork, Engine
from fedwca.engine.randomness import Keys
from fedwca.federated.aggregator_weights import blend_mixtures
from fedwca.federated.client_tasks import client_task
from fedwca.federated.collected_values import pool_collected
from fedwca.federated.method import Method
from fedwca.federated.participation import sample_clients
from fedwca.federated.server import Server, find_unlabeled, offer_models
from fedwca.federated.simulated_uploads import SimulatedUpload, make_uploads
from fedwca.federated.trusted_clients import labeler_trust, measure_trust


@dataclass(frozen=True)
class OpenRound:
    """A round of one federation that the server has opened: what it sends to whom, and what clients do with it."""

    round: int
    server: Server
    method: Method
    engine: Engine
    keys: Keys
    domains: Tensor
    offer: Offer
    shared: Mapping[str, Tensor]
    """What each client is sent besides models."""
    task: Callable[[int], Task]
    """What each client is to do."""
    clients: Sequence[int]
    """Those that take part."""
    done: Callable[[int], None]
    """Called after each client."""
    last_phase: bool = False
    """Whether clients without labels adapt what they were sent, after all rounds."""
    trusted: Tensor | None = None
    """How far clients' labels are trusted ``[K]``, 0 to 1; None where all are."""
    taught: Mapping[str, Tensor] = field(default_factory=dict)
    """All clients' predictions of public images, pooled, as each client was sent them."""
    public_seconds: float = 0.0
    """Wall-clock seconds in which all clients learned from these."""

    @property
    def unlabeled(self) -> Tensor:
        """Clients ``[K]`` bool without labels where others have some."""
        return find_unlabeled(self.engine.labels)

    @property
    def rows(self) -> Tensor:
        """The server's rows ``[R, P]``, which the offer's models are mixtures of."""
        return self.server.rows

    @property
    def source(self) -> Tensor:
        """The model that clients were sent before round 0, which a central method may have trained."""
        return self.server.source

    @property
    def as_trained(self) -> bool:
        """See `fedwca.engine.interface.RoundWork`; the server's rows are no client's own models."""
        return False

    @property
    def trains(self) -> bool:
        """See `fedwca.engine.interface.RoundWork`."""
        return True

    def blend(self, work: ClientWork) -> Blend:
        """Where clients start, computed from their own images."""
        with work.clock("evidence"):
            blend = Blend(work.own)
            if (self.round or self.method.aggregator.offers_in_round_0) and not self.last_phase:
                blend = blend_mixtures(self.method.aggregator, self.round, work)
            if (self.round and not self.last_phase) or any(labels is not None for labels in work.labels):
                return blend
            # Measured with the source model as the client has it; in the last phase with that of labelled clients.
            with torch.no_grad():  # the same pass makes the labels; its result is reused there
                return replace(blend, notes={**blend.notes, "trust": measure_trust(work.outputs(work.own))})

    def upload(self, work: ClientWork, blend: Blend, targets: Sequence[Targets]) -> list[SimulatedUpload]:
        """What trained clients send back."""
        return make_uploads(blend, work, targets, work.collect(targets))

    def step(self, work: ClientWork) -> list[SimulatedUpload]:
        """A client's whole part of the round, from the offer to the upload."""
        blend = self.blend(work)
        return self.upload(work, blend, work.train(blend))

    def restrict(self, clients: Sequence[int]) -> OpenRound:
        """The same for some of the clients alone."""
        return replace(self, clients=clients)


def open_round(
    round: int,
    server: Server,
    method: Method,
    engine: Engine,
    training: Training,
    keys: Keys,
    domains: Tensor,
    participation: float = 1.0,
    done: Callable[[int], None] = lambda client: None,
) -> OpenRound:
    """The first part of a round at the server; see `run_round`."""
    clients, shared = len(engine.images), pool_collected(method.own_objectives, server.state)

    def task(client: int) -> Task:
        trust = 1.0 if trusted is None else float(trusted[client])
        return client_task(method, training, round, keys, client, shared, trust)

    if not round and method.aggregator.offers_in_round_0:
        initial = method.aggregator.initial_state(clients)
        answered = f"aggregator {method.aggregator.name!r}: initial_state"
        server = replace(server, state=check_tensors(initial, answered))
    trusted = server.state.get(TRUSTED)  # tasks read it when they are made, so they also see the value set below
    offer = offer_models(round, server, method.aggregator, clients, engine.layout.trained)
    trainable = [k for k, lacks_labels in enumerate(find_unlabeled(engine.labels).tolist()) if not lacks_labels]
    chosen = [trainable[place] for place in sample_clients(round, len(trainable), participation, keys)]
    if not round:
        unlabeled = [k for k in chosen if engine.labels[k] is None]
        trusted = labeler_trust(method.pseudo_labeler, engine, offer, server.rows, task, unlabeled)
    return OpenRound(
        round=round,
        server=server,
        method=method,
        engine=engine,
        keys=keys,
        domains=domains,
        offer=offer,
        shared=shared,
        task=task,
        clients=chosen,
        done=done,
        trusted=trusted,
    )
