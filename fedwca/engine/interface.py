"""What a round, its records and a bench need of an engine; nothing of how clients are run."""

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
from fedwca.engine.class_predictions import ClassPredictions
from fedwca.engine.client_task import Task
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.test_time_adaptation import AdaptedModel
from fedwca.engine.timing import Phases

T = TypeVar("T")


class ClientWork(View, Protocol):
    """Some clients between two messages, one or many at once: evidence on what they were sent, labels, training."""

    @property
    def weights(self) -> Tensor:
        """``[K, Q+S, R]``: the models each client was sent, as mixtures of the server's rows."""

    @property
    def seconds(self) -> Phases:
        """Time spent so far by phase, of these clients together."""

    @property
    def passes(self) -> int:
        """Evaluation passes over each client's images so far."""

    @property
    def labels(self) -> Sequence[Tensor | None]:
        """Labels of each client's training images ``[N]``; None of one that has none."""

    def clock(self, phase: str) -> AbstractContextManager[None]:
        """Adds the time spent inside to a phase."""

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """What each client's own mixture ``[K, Q+S]`` says of its images, one entry a client."""

    def outputs_after_step(self, mixtures: Tensor) -> list[Predictions]:
        """As `outputs`, and what the models say after a step of the task's adaptation on all these images."""

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round; models are left in the bank. The targets of the last epoch, one a client."""

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What each client uploads beside its trained model, by ``<objective>.<name>``, on the CPU."""


class RoundWork(Protocol[T]):
    """What an engine is told of a round: what is sent to whom, and what clients do with it."""

    @property
    def offer(self) -> Offer:
        """What each client is sent."""

    @property
    def rows(self) -> Tensor:
        """The server's rows ``[R, P]``, which the offer's models are mixtures of."""

    @property
    def task(self) -> Callable[[int], Task]:
        """What each client is to do."""

    @property
    def clients(self) -> Sequence[int]:
        """Those that take part."""

    @property
    def done(self) -> Callable[[int], None]:
        """Called in the calling thread after each client."""

    def step(self, work: ClientWork) -> list[T]:
        """What clients do with what they were sent, one value a client; called for each group that works at once."""

    def restrict(self, clients: Sequence[int]) -> RoundWork[T]:
        """The same for some of the clients alone."""


class TrainingRound(RoundWork[T], Protocol[T]):
    """A round whose step is to blend, to train, and to upload; engines may train several of them together."""

    def blend(self, work: ClientWork) -> Blend:
        """Where clients start, by what they find in their own images."""

    def upload(self, work: ClientWork, blend: Blend, targets: Sequence[Targets]) -> list[T]:
        """What trained clients send back, one value a client."""


@dataclass(frozen=True)
class SingleStep(Generic[T]):
    """A `RoundWork` of its own, outside of a method's rounds; its fields are those of the protocol."""

    offer: Offer
    rows: Tensor
    task: Callable[[int], Task]
    clients: Sequence[int]
    step: Callable[[Any], list[T]]
    done: Callable[[int], None] = lambda client: None

    def restrict(self, clients: Sequence[int]) -> SingleStep[T]:
        """See `RoundWork`."""
        return replace(self, clients=clients)


class Engine(Protocol):
    """Holds the clients' images and the bank of their models, and runs them; results do not depend on which it is."""

    layout: Layout
    """The order of a row."""
    network: Network
    """The model everybody starts from; unless it is whole, its classifier is shared and frozen."""
    bank: Tensor
    """``[K, P]``, every client's own model."""
    images: list[Tensor]
    """Training images of each client ``[N, 3, H, W]`` uint8."""
    labels: list[Tensor | None]
    """Their labels ``[N]``; None of a client that has none."""
    sizes: Tensor
    """Training images of each client ``[K]``."""
    device: torch.device
    """Where models and images live."""

    def run(self, round: RoundWork[T]) -> list[T]:
        """Send every client its offer and let it take its step; trained models are left in ``bank``.

        Returns:
            What the round's ``step`` gave, in the order of its clients.
        """

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows: mixtures ``[C, R+K]`` of (previous rows ``[R, P]``, bank)."""

    def predict_tests(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[ClassPredictions]:
        """What models say of each client's test images.

        Args:
            weights: the model of each client as a mixture of ``rows`` ``[K, R]``; None: its own in the bank.
            rows: ``[R, P]``.
            clients: whose; None: all.
        """

    def adapt(
        self,
        adaptation: Adaptation,
        lr: float,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
        clients: Sequence[int] | None = None,
    ) -> list[AdaptedModel]:
        """Fit models to test images without their labels, and predict these very images; what the engine holds stays.

        Args:
            adaptation: whose steps are made.
            lr: their size.
            weights: the model of each client as a mixture of ``rows`` ``[K, R]``; None: its own in the bank.
            rows: ``[R, P]``.
            clients: whose; None: everybody's. Each of them gives a whole model back.
        """

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models as they are at the clients ``[K, P]``: mixtures ``[K, R]`` of rows ``[R, P]``."""


class TrialsInTurn:
    """Federations of a comparison that go through their rounds together: here, one engine after the other.

    Args:
        engines: one for each federation.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = list(engines)

    def run(self, rounds: Mapping[int, TrainingRound[T]]) -> dict[int, list[T]]:
        """What clients give by federation, in the order of each round's clients; trained models are left in the banks.

        Args:
            rounds: the same one of one method, by federation; those that are not in it rest.
        """
        return {i: self.engines[i].run(own) for i, own in rounds.items()}
