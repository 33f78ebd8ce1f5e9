"""What a client is told to do in a round: how it trains, what it was sent, and what stays the same over its steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from fedwca.core.interfaces import Objective, PseudoLabeler
from fedwca.core.messages import Targets


class Training(BaseModel):
    """How a client trains: SGD with a fresh momentum every round."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    epochs: PositiveInt = 5
    """E, passes over the client's images in a round."""
    lr: PositiveFloat = 1e-3
    """Learning rate of SGD."""
    batch_size: int = Field(64, ge=2)
    """Images per step; the last, smaller batch is kept unless it holds a single image (BatchNorm needs two)."""
    momentum: NonNegativeFloat = 0.9
    """Factor of the momentum."""
    weight_decay: NonNegativeFloat = 1e-3
    """L2 decay of all trained parameters."""
    nesterov: bool = False
    """Nesterov's momentum instead of the heavy ball."""
    clip: PositiveFloat | None = None
    """Largest length of the gradient of a step, before weight decay; none does not clip."""
    cosine: PositiveInt | None = None
    """Rounds over which the learning rate falls to 0 along half a cosine; none keeps it constant."""

    def at(self, round: int) -> Training:
        """The training of one round, its learning rate that of the round.

        >>> [round(Training(lr=1, cosine=4).at(number).lr, 3) for number in range(6)]
        [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
        """
        if self.cosine is None:
            return self
        lr = self.lr * (1 + math.cos(math.pi * min(round / self.cosine, 1))) / 2
        return self.model_copy(update={"lr": lr, "cosine": None})


@dataclass(frozen=True)
class Received:
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
