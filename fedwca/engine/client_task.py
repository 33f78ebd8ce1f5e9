"""What a client is told to do in a round: how it trains, what it was sent, and what stays the same over its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fedwca.core.interfaces import Objective, PseudoLabeler
from fedwca.core.messages import Targets
from fedwca.core.training_settings import Training as Training


@dataclass(frozen=True)
class SentModels:
    """The models one client was sent, as mixtures of the server's rows."""

    weights: Tensor
    """``[Q+S, R]``"""
    resolve: Callable[[Tensor], Tensor]
    """Mixture of server rows ``[R]`` to the model ``[P]`` it is at this client."""
    source: Tensor
    """``[P]``, the model everybody was sent before round 0."""

    def mix(self, mixture: Tensor) -> Tensor:
        """The model ``[P]`` that a mixture ``[Q+S]`` of what was sent stands for."""
        return self.resolve(mixture.to(self.weights) @ self.weights)


@dataclass(frozen=True)
class Task:
    """What a client is to do in a round, apart from where it starts."""

    labeler: PseudoLabeler
    objectives: Sequence[Objective]
    training: Training
    keys: Callable[[str], int]
    """A purpose to the key of this client's draws in this round."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """What the server shares of uploads that are not models; empty in round 0."""


@dataclass(frozen=True)
class EpochContext:
    """What stays the same over the steps between two labellings."""

    targets: Targets
    taught: Mapping[str, Tensor]
    """Logits ``[N, M]`` of the plain images by frozen models."""
    anchors: Mapping[str, Tensor]
    """Trained parameters of the models that penalties compare with."""
    observed: Mapping[str, Tensor]
    shared: Mapping[str, Tensor]
