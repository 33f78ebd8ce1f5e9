"""Values a user sets that say how clients and the source model train; torch is not needed to read them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from fedwca.registry import UserValues

Precision = Literal["fp32", "tf32", "bf16", "bf16-all"]
"""fp32; tf32: a GPU's products round their factors to ten bits; bf16: steps of training in bfloat16 where that is safe;
bf16-all: evidence and labels too."""
DROPPED = {"products", "compile"}
"""Kernels of the stacked engine in earlier releases, slower in all that was measured."""


class Training(UserValues):
    """How a client trains: SGD with a fresh momentum every round."""

    epochs: PositiveInt = 5
    """E, passes over the client's images in a round."""
    lr: PositiveFloat = 1e-3
    """Learning rate of SGD."""
    batch_size: int = Field(64, ge=2)
    """Images per step; the last, smaller batch is kept unless it holds a single image (BatchNorm needs two)."""
    momentum: float = Field(0.9, ge=0, lt=1)
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
        # Here, for the equations' package needs torch, and whoever reads settings does not.
        from fedwca.functional.learning_rate import cosine_learning_rate

        lr = cosine_learning_rate(self.lr, round, self.cosine)
        return self.model_copy(update={"lr": lr, "cosine": None})


class SourceTraining(UserValues):
    """How the source model is trained: cross-entropy, SGD with momentum, constant learning rate."""

    epochs: NonNegativeInt = 30
    """Passes over the source's training part; the state with the best held-out accuracy is kept."""
    lr: PositiveFloat = 1e-3
    """Learning rate."""
    batch_size: int = Field(64, ge=2)
    """Images per step; a last batch of less than half of it is left out of the epoch."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Heavy-ball momentum."""
    weight_decay: NonNegativeFloat = 1e-3
    """L2 decay."""
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing; the paper speaks of standard cross-entropy, SHOT uses 0.1."""
    held_out: float = Field(0.1, gt=0, lt=1)
    """Share of the source images kept aside to choose the epoch and to report the accuracy."""


class CentralTraining(UserValues):
    """How a model is trained where all domains are at one place: SGD with momentum, constant learning rate."""

    epochs: PositiveInt = 20
    """Passes over the largest source; the model after the last is taken."""
    lr: PositiveFloat = 1e-2
    """Learning rate."""
    batch_size: int = Field(64, ge=2)
    """Images of each source and of the target in a step; where domains are pooled, of all together."""
    momentum: NonNegativeFloat = 0.9
    """Heavy-ball momentum."""
    weight_decay: NonNegativeFloat = 1e-3
    """L2 decay."""
