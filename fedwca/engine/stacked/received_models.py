"""The models that a batch of clients was sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class StackedReceived:
    """The models that G clients were sent, as mixtures of the server's rows."""

    weights: Tensor
    """``[G, Q+S, R]``"""
    personal: int
    """Q"""
    resolve: Callable[[Tensor], Tensor]
    """Turns mixtures of server rows ``[G, R]`` into these clients' models ``[G, P]``."""
    resolve_common: Callable[[Tensor], Tensor] | None
    """Turns a mixture of server rows ``[R]`` into the model ``[P]`` of every client; None: models differ by client."""
    source: Tensor
    """``[P]``, the source model, which every client was sent before round 0."""

    def mix(self, mixtures: Tensor) -> Tensor:
        """The models ``[G, P]`` that mixtures ``[G, Q+S]`` of the sent models give."""
        return self.resolve((mixtures.to(self.weights)[:, None] @ self.weights)[:, 0])
