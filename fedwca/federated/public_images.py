"""What clients do with public images, which everybody has and nobody labels: before they train they learn what the
server makes of all clients' predictions of them, and after it they upload their own. Nothing else travels.

Source: FedTTA, Algorithm 2 (HeteroFedTTA); Li and Wang (FedMD), 2019.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Blend, Predictions, State, Targets
from fedwca.core.public_objective import PublicObjective
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.client_task import Task
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.engine.randomness import Keys
from fedwca.federated.method import Method
from fedwca.federated.round import OpenRound
from fedwca.federated.server import offer_own, pool_collected
from fedwca.federated.simulated_uploads import SimulatedUpload

PURPOSE = "public "
"""How the purpose begins of what draws the order of public images."""


class NoLabels(PseudoLabeler):
    """Labels nothing: what an image is trained towards comes from elsewhere."""

    models = ()

    @property
    def mixes(self) -> bool:
        """No image is mixed with another."""
        return False

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Weights of 0."""
        return Targets.of_labels(torch.zeros_like(draws, dtype=torch.int64), torch.zeros_like(draws))


def holders_of(public: Tensor, number: int) -> list[ClientImages]:
    """So many clients that have public images to train on, without labels, and no others."""
    return [ClientImages(public, public[:0], public[:0])] * number


def _public_task(
    method: Method,
    objective: PublicObjective,
    training: Training,
    factor: float,
    keys: Callable[[str], int],
    taught: Mapping[str, Tensor],
    passes: int,
) -> Task:
    """What a client does on public images: epochs in place of steps, all else as it trains on its own.

    Args:
        method: what is played.
        objective: its public one.
        training: of the round.
        factor: that round's learning rates over those that were set.
        keys: a purpose to the key of the client's draws.
        taught: what the server makes of all clients' predictions.
        passes: over the images.
    """
    same = {"steps": None, "epochs": passes, "batch_size": objective.batch_size, "cuts": 1, "trains": "all"}
    return Task(
        NoLabels(),
        (objective,),
        training.model_copy(update=same),
        lambda purpose: keys(f"{PURPOSE}{purpose}"),
        adaptation=method.adaptation,
        taught=taught,
        factor=factor,
    )


def learn_from_predictions(opened: OpenRound, public: Engine) -> OpenRound:
    """A round in which clients have learned what the server makes of all predictions; as it is before there are any.

    Args:
        opened: as the server began it; every client has a row of its own.
        public: has the public images for each client; its bank holds the models that come of it.
    """
    objective = opened.method.public_objective
    assert objective is not None
    taught, began = pool_collected((objective,), opened.server.state), time.perf_counter()
    if not taught:
        return opened

    def task(client: int) -> Task:
        own = opened.task(client)
        given = (opened.method, objective, own.training, own.factor)
        return _public_task(
            *given, lambda purpose: opened.keys(opened.round, client, purpose), taught, objective.passes
        )

    public.bank.copy_(opened.rows)
    public.run(SingleStep(opened.offer, opened.rows, task, opened.clients, lambda work: work.train(Blend(work.own))))
    server = replace(opened.server, rows=public.bank)
    return replace(opened, server=server, taught=taught, public_seconds=time.perf_counter() - began)


def upload_predictions(opened: OpenRound, public: Engine, uploads: Sequence[SimulatedUpload]) -> list[SimulatedUpload]:
    """Clients' uploads, and in each what its trained model says of the public images.

    Args:
        opened: the round; trained models are in its engine's bank.
        public: has the public images for each client.
        uploads: of its clients, in order.
    """
    objective, began = opened.method.public_objective, time.perf_counter()
    assert objective is not None

    def tell(work: ClientWork) -> list[tuple[dict[str, Tensor], int]]:
        with torch.no_grad():
            found = work.outputs_after_step(work.own)
            nothing = NoLabels()({}, found[0].logits.new_zeros(len(found[0].logits)))
            said = [objective.collect(own, nothing) for own in found]
        return [({name: value.cpu() for name, value in own.items()}, work.passes) for own in said]

    bank = opened.engine.bank
    told = public.run(SingleStep(offer_own(len(bank)), bank, opened.task, opened.clients, tell))
    spent = (opened.public_seconds + time.perf_counter() - began) / len(uploads)
    return [
        replace(
            upload,
            collected={**upload.collected, **{f"{objective.name}.{name}": value for name, value in said.items()}},
            passes=upload.passes + passes,
            seconds={**upload.seconds, "public": spent},
        )
        for upload, (said, passes) in zip(uploads, told, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class FreshModels:
    """Models that nobody trained, one of each size, for new clients to learn from public images and then to adapt.

    New clients of one size begin with the same weights and see the public images in one order, so that one training
    serves all of them.
    """

    rows: Tensor
    """``[S, P]``"""
    sizes: Tensor
    """Size of each new client ``[K']`` int64, from 0."""
    public: Engine
    """Has the public images for each size."""
    keys: Keys
    clients: int
    """Those that train, whose numbers come first."""

    @property
    def weights(self) -> Tensor:
        """Each new client's model as a mixture of the rows ``[K', S]``."""
        return one_hot(self.sizes, len(self.rows)).double()

    def learn(
        self, method: Method, state: State, training: Training, round: int, sizes: Sequence[int] | None = None
    ) -> Tensor:
        """Models ``[S, P]`` that have learned what the server makes of all clients' predictions; as they are before
        there are any.

        Args:
            method: what was played.
            state: the server's, after a round.
            training: how clients train, with its schedule.
            round: in whose learning rates.
            sizes: whose learn, from 0; rows of others mean nothing then. None: all.
        """
        objective = method.public_objective
        assert objective is not None
        taught = pool_collected((objective,), state)
        if not taught:
            return self.rows

        def task(size: int) -> Task:
            draws = lambda purpose: self.keys(0, self.clients + size, purpose)  # noqa: E731
            now, factor = training.at(round), training.factor(round)
            return _public_task(method, objective, now, factor, draws, taught, objective.new_passes)

        own = range(len(self.rows)) if sizes is None else sizes
        train = lambda work: work.train(Blend(work.own))  # noqa: E731
        self.public.run(SingleStep(offer_own(len(self.rows)), self.rows, task, own, train))
        return self.public.bank
