"""Training on public images, which every client has and nobody labels. Before clients train on their own images they
learn what the server pooled of all clients' predictions of the public ones; afterwards they upload their own
predictions. Nothing else is sent.

Source: FedTTA, Algorithm 2 (HeteroFedTTA); Li and Wang (FedMD), 2019.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.core.component_answers import describe_value
from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Predictions, State, Targets
from fedwca.core.public_objective import PublicObjective
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.client_program import collect
from fedwca.engine.client_task import Task, adaptation_lr
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.engine.randomness import Keys
from fedwca.errors import FedwcaError
from fedwca.federated.client_tasks import train_own
from fedwca.federated.collected_values import pool_collected
from fedwca.federated.method import Method
from fedwca.federated.open_round import OpenRound
from fedwca.federated.server import offer_own
from fedwca.federated.simulated_uploads import SimulatedUpload

PURPOSE = "public "
"""Prefix of the purposes whose keys are for public images, such as their order."""


class NoLabels(PseudoLabeler):
    """Gives no labels: public images are trained towards pooled predictions."""

    models = ()

    @property
    def mixes(self) -> bool:
        """No image is mixed with another."""
        return False

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Labels of weight 0."""
        return Targets.of_labels(torch.zeros_like(draws, dtype=torch.int64), torch.zeros_like(draws))


def holders_of(public: Tensor, number: int) -> list[ClientImages]:
    """Images of ``number`` clients, each with the public images to train on, without labels, and no others."""
    return [ClientImages(public, public[:0])] * number


def _public_task(
    method: Method,
    objective: PublicObjective,
    training: Training,
    factor: float,
    inner_lr: float,
    keys: Callable[[str], int],
    taught: Mapping[str, Tensor],
    passes: int,
) -> Task:
    """A client's task on public images: in epochs, not in steps; all else as on its own images.

    Args:
        method: the method of the federation.
        objective: its public objective.
        training: of the round.
        factor: that round's learning rates divided by those that were set.
        inner_lr: step size of the method's adaptation.
        keys: maps a purpose to the key of the client's draws.
        taught: all clients' predictions, as the server pooled them.
        passes: number of passes over the images.
    """
    changes = {
        "steps": None,
        "epochs": passes,
        "batch_size": objective.batch_size,
        "rounds_per_epoch": 1,
        "trains": "all",
    }
    return Task(
        NoLabels(),
        (objective,),
        training.model_copy(update=changes),
        lambda purpose: keys(f"{PURPOSE}{purpose}"),
        adaptation=method.adaptation,
        taught=taught,
        factor=factor,
        inner_lr=inner_lr,
    )


def pool_predictions(objective: PublicObjective, state: State, public: Engine) -> dict[str, Tensor]:
    """All clients' predictions of the N public images, pooled, by name ``[N, M]``; empty while there are none.

    Raises:
        FedwcaError: the objective pools them to something else.
    """
    taught, count = pool_collected((objective,), state), len(public.images[0])
    for name, value in taught.items():
        if value.dim() != 2 or len(value) != count:
            raise FedwcaError(
                f"objective {objective.name!r}: pool gave {name} {describe_value(value)}; right are predictions of "
                f"{count} public images, [N, M]"
            )
    return taught


def learn_from_predictions(opened: OpenRound, public: Engine) -> OpenRound:
    """The round after clients have learned from the pooled predictions; unchanged while there are none.

    Args:
        opened: as the server opened it; every client has a row of its own.
        public: has the public images for each client; its bank holds the trained models afterwards.
    """
    objective = opened.method.public_objective
    assert objective is not None
    taught, began = pool_predictions(objective, opened.server.state, public), time.perf_counter()
    if not taught:
        return opened

    def task(client: int) -> Task:
        own_task = opened.task(client)
        arguments = (opened.method, objective, own_task.training, own_task.factor, own_task.inner_lr)
        return _public_task(
            *arguments, lambda purpose: opened.keys(opened.round, client, purpose), taught, objective.passes
        )

    public.bank.copy_(opened.rows)
    public.run(
        SingleStep(opened.offer, opened.rows, task, opened.clients, train_own, source=opened.source, trains=True)
    )
    server = replace(opened.server, rows=public.bank)
    return replace(opened, server=server, taught=taught, public_seconds=time.perf_counter() - began)


def upload_predictions(opened: OpenRound, public: Engine, uploads: Sequence[SimulatedUpload]) -> list[SimulatedUpload]:
    """Clients' uploads, each with its trained model's predictions of the public images added.

    Args:
        opened: the round; trained models are in its engine's bank.
        public: has the public images for each client.
        uploads: of its clients, in order.
    """
    objective, began = opened.method.public_objective, time.perf_counter()
    assert objective is not None

    def predict(work: ClientWork) -> list[tuple[dict[str, Tensor], int]]:
        with torch.no_grad():
            predictions = work.outputs_after_step(work.own) if objective.adapts else work.outputs(work.own)
            no_targets = NoLabels()({}, predictions[0].logits.new_zeros(len(predictions[0].logits)))
            collected = [collect([objective], x, no_targets) for x in predictions]
        return [({name: value.cpu() for name, value in x.items()}, work.passes) for x in collected]

    bank = opened.engine.bank
    own_models = SingleStep(offer_own(len(bank)), bank, opened.task, opened.clients, predict, as_trained=True)
    answers = public.run(own_models)
    seconds = (opened.public_seconds + time.perf_counter() - began) / len(uploads)
    return [
        replace(
            upload,
            collected={**upload.collected, **predicted},
            passes=upload.passes + passes,
            seconds={**upload.seconds, "public": seconds},
        )
        for upload, (predicted, passes) in zip(uploads, answers, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class FreshModels:
    """Untrained models, one of each size, which new clients train on public images and then adapt.

    New clients of one size begin with the same weights and see the public images in one order, so that one training
    serves all of them.
    """

    rows: Tensor
    """``[S, P]``"""
    sizes: Tensor
    """Size of each new client ``[K']`` int64, from 0."""
    public: Engine
    """Engine that has the public images for each size."""
    keys: Keys
    clients: int
    """Number of clients that train, whose numbers come first."""

    @property
    def weights(self) -> Tensor:
        """Each new client's model as a mixture of the rows ``[K', S]``."""
        return one_hot(self.sizes, len(self.rows)).double()

    def learn(
        self, method: Method, state: State, training: Training, round: int, sizes: Sequence[int] | None = None
    ) -> Tensor:
        """Models ``[S, P]`` that have learned from all clients' pooled predictions; untrained while there are none.

        Args:
            method: the method of the federation.
            state: the server's, after a round.
            training: how clients train, with its schedule.
            round: the round whose learning rates are used.
            sizes: sizes that learn, from 0; the rows of other sizes then have no meaning. None: all.
        """
        objective = method.public_objective
        assert objective is not None
        taught = pool_predictions(objective, state, self.public)
        if not taught:
            return self.rows

        def task(size: int) -> Task:
            draws = lambda purpose: self.keys(0, self.clients + size, purpose)  # noqa: E731
            factor, inner_lr = training.decayed(round), adaptation_lr(method.adaptation, training, round)
            decayed = training.model_copy(update={"cosine": None}).at(round)  # these models begin to learn
            return _public_task(method, objective, decayed, factor, inner_lr, draws, taught, objective.new_passes)

        learning_sizes = range(len(self.rows)) if sizes is None else sizes
        offer = offer_own(len(self.rows))
        self.public.run(SingleStep(offer, self.rows, task, learning_sizes, train_own, trains=True))
        return self.public.bank
