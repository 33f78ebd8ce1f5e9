"""The interface of engines that rounds, records and benches use; it leaves open how clients are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.core.messages import Blend, Offer, Predictions, Targets, View
from fedwca.core.network import Network
from fedwca.core.training_settings import Precision
from fedwca.engine.class_predictions import ClassPredictions
from fedwca.engine.client_task import Task
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.test_time_adaptation import AdaptedModel
from fedwca.engine.timing import Phases

T = TypeVar("T")


class ClientWork(View, Protocol):
    """Work of one or many clients between two messages: evidence on the models they were sent, labels, training."""

    @property
    def weights(self) -> Tensor:
        """``[K, Q+S, R]``: the models each client was sent, as mixtures of the server's rows."""

    @property
    def seconds(self) -> Phases:
        """Seconds spent so far by phase, of these clients together."""

    @property
    def passes(self) -> int:
        """Number of evaluation passes over each client's images so far."""

    @property
    def labels(self) -> Sequence[Tensor | None]:
        """Labels of each client's training images ``[N]``; None for a client without labels."""

    def clock(self, phase: str) -> AbstractContextManager[None]:
        """Context whose duration is added to a phase."""

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """Predictions of each client's images by the client's own mixture of ``[K, Q+S]``, one entry per client."""

    def outputs_after_step(self, mixtures: Tensor) -> list[Predictions]:
        """As `outputs`, with the logits after one step of the task's adaptation on all these images."""

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round, and store the models in the bank.

        Returns:
            The targets of the last epoch, one entry per client.
        """

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What each client uploads beside its trained model, by ``<objective>.<name>``, on the CPU."""


class RoundWork(Protocol[T]):
    """A round as an engine sees it: what each client is sent, and what clients do with it."""

    @property
    def offer(self) -> Offer:
        """What each client is sent."""

    @property
    def rows(self) -> Tensor:
        """The server's rows ``[R, P]``, which the offer's models are mixtures of."""

    @property
    def source(self) -> Tensor | None:
        """The source model ``[P]``, which every client was sent before round 0; None: the engine's network."""

    @property
    def as_trained(self) -> bool:
        """Whether the rows are clients' own models, whose BatchNorm statistics stay, whatever the policy."""

    @property
    def trains(self) -> bool:
        """Whether clients' models in the bank change; if not, nothing of the bank is sent between ranks."""

    @property
    def task(self) -> Callable[[int], Task]:
        """Maps a client to what it has to do."""

    @property
    def clients(self) -> Sequence[int]:
        """Clients that take part."""

    @property
    def done(self) -> Callable[[int], None]:
        """Called after each client, in the thread that called `Engine.run`."""

    def step(self, work: ClientWork) -> list[T]:
        """Do the work of clients on what they were sent, and return one value per client.

        Called for each group of clients that work at once.
        """

    def restrict(self, clients: Sequence[int]) -> RoundWork[T]:
        """The same round for only some of its clients."""


class TrainingRound(RoundWork[T], Protocol[T]):
    """A round whose step is to blend, to train and to upload; engines may train several such rounds together."""

    def blend(self, work: ClientWork) -> Blend:
        """The models that clients start from, chosen by evidence on their own images."""

    def upload(self, work: ClientWork, blend: Blend, targets: Sequence[Targets]) -> list[T]:
        """What trained clients send back, one value per client."""


@dataclass(frozen=True)
class SingleStep(Generic[T]):
    """A `RoundWork` outside of a method's rounds; its fields are those of the protocol."""

    offer: Offer
    rows: Tensor
    task: Callable[[int], Task]
    clients: Sequence[int]
    step: Callable[[Any], list[T]]
    done: Callable[[int], None] = lambda client: None
    as_trained: bool = False
    source: Tensor | None = None
    trains: bool = False

    def restrict(self, clients: Sequence[int]) -> SingleStep[T]:
        """See `RoundWork`."""
        return replace(self, clients=clients)


class Engine(Protocol):
    """Holds the clients' images and the bank of their models, and runs clients; all engines give the same results."""

    layout: Layout
    """The order of a row."""
    network: Network
    """The model that all clients start from; its classifier is shared and frozen unless its ``trains_classifier``."""
    bank: Tensor
    """``[K, P]``, each client's own model."""
    images: list[Tensor]
    """Training images of each client ``[N, 3, H, W]`` uint8."""
    labels: list[Tensor | None]
    """Labels of these images ``[N]``; None for a client without labels."""
    sizes: Tensor
    """Number of training images of each client ``[K]``."""
    device: torch.device
    """Where models and images live."""
    precision: Precision
    """In which clients compute."""

    def run(self, round: RoundWork[T]) -> list[T]:
        """Send each client its offer and let it do its step; trained models are stored in ``bank``.

        Returns:
            What the round's ``step`` returned, in the order of its clients.
        """

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows: mixtures ``[C, R+K]`` of (previous rows ``[R, P]``, bank)."""

    def predict_tests(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[ClassPredictions]:
        """Predictions of each client's test images.

        Args:
            weights: the model of each client as a mixture of ``rows`` ``[K, R]``; None: its own in the bank.
            rows: ``[R, P]``.
            clients: whose images; None: those of all.
        """

    def adapt(
        self,
        adaptation: Adaptation,
        lr: float,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
        clients: Sequence[int] | None = None,
    ) -> list[AdaptedModel]:
        """Adapt models to test images without labels, and predict the same images; the bank is not changed.

        Args:
            adaptation: its steps are made.
            lr: step size.
            weights: the model of each client as a mixture of ``rows`` ``[K, R]``; None: its own in the bank.
            rows: ``[R, P]``.
            clients: whose models; None: those of all. A whole model is returned for each.
        """

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models ``[K, P]`` as the clients have them: mixtures ``[K, R]`` of rows ``[R, P]``."""


class TrialsInTurn:
    """Federations of a comparison that go through each round together: here one engine after the other.

    Args:
        engines: one for each federation.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = list(engines)

    def run(self, rounds: Mapping[int, TrainingRound[T]]) -> dict[int, list[T]]:
        """Results of clients by federation, in the order of each round's clients; trained models are left in the banks.

        Args:
            rounds: the same round of one method, by federation; federations that are not in it do nothing.
        """
        return {i: self.engines[i].run(trial_round) for i, trial_round in rounds.items()}
