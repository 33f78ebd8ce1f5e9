"""What a round, its records and a bench need of an engine; nothing of how clients are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fedwca.core.messages import Blend, Offer, Predictions, Targets, View
from fedwca.core.network import Network
from fedwca.engine.layout import Layout
from fedwca.engine.task import Task
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

    def clock(self, phase: str) -> AbstractContextManager[None]:
        """Adds the time spent inside to a phase."""

    def outputs(self, mixtures: Tensor) -> list[Predictions]:
        """What each client's own mixture ``[K, Q+S]`` says of its images, one entry a client."""

    def train(self, blend: Blend) -> list[Targets]:
        """Label and train for one round; models are left in the bank. The targets of the last epoch, one a client."""

    def collect(self, targets: Sequence[Targets]) -> list[dict[str, Tensor]]:
        """What each client uploads beside its trained model, by ``<objective>.<name>``, on the CPU."""


class Engine(Protocol):
    """Holds the clients' images and the bank of their models, and runs them; results do not depend on which it is."""

    layout: Layout
    """The order of a row."""
    network: Network
    """The source model; its classifier is shared and frozen."""
    bank: Tensor
    """``[K, P]``, every client's own model."""
    images: list[Tensor]
    """Training images of each client ``[N, 3, H, W]`` uint8."""
    sizes: Tensor
    """Training images of each client ``[K]``."""
    device: torch.device
    """Where models and images live."""

    def run(
        self,
        offer: Offer,
        rows: Tensor,
        task: Callable[[int], Task],
        step: Callable[[Sequence[int], ClientWork], list[T]],
        clients: Sequence[int],
        done: Callable[[int], None] = lambda client: None,
    ) -> list[T]:
        """Send every client its offer and let it take one step; trained models are left in ``bank``.

        Args:
            offer: what each client is sent.
            rows: the server's rows ``[R, P]``.
            task: what each client is to do.
            step: how clients go about it, one value a client; called for each group that works at once.
            clients: those that take part.
            done: called in the calling thread after each client.

        Returns:
            What ``step`` gave, in the order of ``clients``.
        """

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows: mixtures ``[C, R+K]`` of (previous rows ``[R, P]``, bank)."""

    def classify(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Predicted classes of test images ``[N_test]``, of all clients or some; by their own models, or mixtures."""

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models as they are at the clients ``[K, P]``: mixtures ``[K, R]`` of rows ``[R, P]``."""


class Part(Protocol[T]):
    """One federation's part of a round, as engines see it: what is sent to whom, and what clients do with it."""

    @property
    def offer(self) -> Offer:
        """What each client is sent."""

    @property
    def rows(self) -> Tensor:
        """The server's rows ``[R, P]``."""

    @property
    def task(self) -> Callable[[int], Task]:
        """What each client is to do."""

    @property
    def clients(self) -> Sequence[int]:
        """Those that take part."""

    @property
    def done(self) -> Callable[[int], None]:
        """Called in the calling thread after each client."""

    def blend(self, work: ClientWork) -> Blend:
        """Where clients start, by what they find in their own images."""

    def upload(self, work: ClientWork, blend: Blend, targets: Sequence[Targets]) -> list[T]:
        """What trained clients send back, one value a client."""

    def step(self, clients: Sequence[int], work: ClientWork) -> list[T]:
        """All of it: blend, train, upload."""


class TrialsInTurn:
    """Federations of a comparison that go through their rounds together: here, one engine after the other.

    Args:
        engines: one for each federation.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = list(engines)

    def run(self, parts: Mapping[int, Part[T]]) -> dict[int, list[T]]:
        """What clients give by federation, in the order of each part's clients; trained models are left in the banks.

        Args:
            parts: of one round of one method, by federation; those that are not in it rest.
        """
        return {
            i: self.engines[i].run(part.offer, part.rows, part.task, part.step, part.clients, part.done)
            for i, part in parts.items()
        }
