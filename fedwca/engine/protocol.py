"""What a round, its records and a bench need of an engine; nothing of how clients are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fedwca.engine.bank import Layout
from fedwca.engine.client import Desk
from fedwca.engine.task import Task
from fedwca.network import Network
from fedwca.types import Offer

T = TypeVar("T")


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
        step: Callable[[int, Desk], T],
        clients: Sequence[int],
        done: Callable[[int], None] = lambda client: None,
    ) -> list[T]:
        """Send every client its offer and let it take one step; trained models are left in ``bank``."""

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows: mixtures ``[C, R+K]`` of (previous rows ``[R, P]``, bank)."""

    def classify(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Predicted classes of test images ``[N_test]``, of all clients or some; by their own models, or mixtures."""

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models as they are at the clients ``[K, P]``: mixtures ``[K, R]`` of rows ``[R, P]``."""
