"""User settings of how clients and the source model train; torch is not needed to read them."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from fedwca.errors import UsageError
from fedwca.user_values import UserValues

Precision = Literal["fp32", "tf32", "bf16", "bf16-all"]
"""fp32; tf32: a GPU rounds the factors of matrix products and convolutions to ten bits; bf16: training steps in
bfloat16 where that is safe; bf16-all: evidence and labels too."""
Trains = Literal["all", "classifier", "extractor"]
"""Part of a model that training changes."""


class Training(UserValues):
    """How a client trains: SGD whose momentum starts at 0 in every round."""

    epochs: PositiveInt = 5
    """E, passes over the client's images in a round."""
    lr: PositiveFloat = 1e-3
    """Learning rate of SGD."""
    batch_size: int = Field(64, ge=2)
    """Images per step; the last, smaller batch is kept, unless it holds a single image and the model has
    BatchNorm, which needs two."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Factor of the momentum."""
    weight_decay: NonNegativeFloat = 1e-3
    """L2 decay of all trained parameters."""
    nesterov: bool = False
    """Nesterov's momentum instead of the heavy ball."""
    clip: PositiveFloat | None = None
    """Largest norm of a step's gradient, before weight decay; none: no clipping."""
    cosine: PositiveInt | None = None
    """Rounds over which the learning rate falls to 0 along half a cosine; none keeps it constant. Steps of adaptations
    do not follow it, nor new clients that learn from public images."""
    decay: float = Field(1.0, gt=0, le=1)
    """Factor by which a method's learning rates at clients, those of adaptations too, fall over decay_rounds rounds."""
    decay_rounds: PositiveInt = 10
    """Rounds over which learning rates fall by decay once: in round r their factor is decay^(r / decay_rounds)."""
    extra_momentum: float | None = Field(None, ge=0, lt=1)
    """Factor of the momentum of extra networks, such as FedTTA's adaptation network; unset: the model's."""
    trains: Trains = "all"
    """all; classifier: that alone, on features of the plain images without dropout, BatchNorm's statistics as they
    are; extractor: all but the classifier."""
    rounds_per_epoch: PositiveInt = 1
    """Rounds per epoch: a client's images are divided into so many parts, one for each. Above 1, epochs must be 1."""
    steps: PositiveInt | None = None
    """Steps of SGD in a round, in place of epochs: pass after pass over the client's images, the last one cut short."""

    @model_validator(mode="after")
    def _divides_one_epoch(self) -> Self:
        if self.rounds_per_epoch > 1 and self.epochs > 1:
            raise ValueError(f"rounds_per_epoch = {self.rounds_per_epoch} divides one epoch; it needs epochs = 1")
        return self

    @model_validator(mode="after")
    def _counts_one_thing(self) -> Self:
        if self.steps is not None and ("epochs" in self.model_fields_set or self.rounds_per_epoch > 1):
            conflicting = "rounds_per_epoch" if self.rounds_per_epoch > 1 else "epochs"
            raise ValueError(f"steps = {self.steps} says how long a round is, and so does {conflicting}; leave one out")
        return self

    @model_serializer(mode="wrap")
    def _say_what_counts(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Default values are left out, so that runs of earlier releases, which lack these fields, are recognised.
        values: dict[str, Any] = dump(self)
        if self.rounds_per_epoch == 1:
            values.pop("rounds_per_epoch", None)
        if self.decay == 1:
            values.pop("decay", None)
            values.pop("decay_rounds", None)
        if self.extra_momentum is None:
            values.pop("extra_momentum", None)
        values.pop("steps" if self.steps is None else "epochs", None)
        return values

    def part(self, round: int) -> int:
        """Index of the part of an epoch that a round goes through.

        >>> [Training(epochs=1, rounds_per_epoch=3).part(number) for number in range(5)]
        [0, 1, 2, 0, 1]
        """
        return round % self.rounds_per_epoch

    def at(self, round: int) -> Training:
        """These settings for one round, with that round's learning rate.

        >>> [round(Training(lr=1, cosine=4).at(number).lr, 3) for number in range(6)]
        [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
        >>> [Training(lr=1, decay=0.25, decay_rounds=2).at(number).lr for number in range(4)]
        [1.0, 0.5, 0.25, 0.125]
        """
        if self.cosine is None and self.decay == 1:
            return self
        # Imported here, because `fedwca.functional` needs torch and reading settings does not.
        from fedwca.functional.learning_rate import cosine_learning_rate

        lr = self.lr if self.cosine is None else cosine_learning_rate(self.lr, round, self.cosine)
        return self.model_copy(update={"lr": lr * self.decayed(round), "cosine": None, "decay": 1.0})

    def decayed(self, round: int) -> float:
        """What `decay` alone leaves of a learning rate in a round, from 0 to 1.

        Steps of an adaptation follow no cosine, which ends at 0: they are taken after training, too.

        >>> Training(cosine=2, decay=0.25, decay_rounds=2).decayed(1)
        0.5
        """
        return float(self.decay ** (round / self.decay_rounds))

    def factor(self, round: int) -> float:
        """The ratio of a round's learning rate to the configured one.

        >>> Training(lr=2, decay=0.25, decay_rounds=2).factor(1)
        0.5
        """
        return self.at(round).lr / self.lr

    def of(self, network: str | None) -> Training:
        """These settings for an extra network, given its name, or for the model itself (None).

        >>> [Training(extra_momentum=0.5).of(name).momentum for name in (None, "adaptation")]
        [0.9, 0.5]
        """
        if network is None or self.extra_momentum is None:
            return self
        return self.model_copy(update={"momentum": self.extra_momentum})


class FinishTraining(Training):
    """How clients without labels train in the last phase, after the rounds of those that have labels."""

    epochs: PositiveInt = 10
    """Passes over the client's images."""
    lr: PositiveFloat = 1e-2
    """Learning rate of SGD."""
    trains: Trains = "classifier"
    """all; classifier: that alone, on features of the plain images without dropout, BatchNorm's statistics as they
    are; extractor: all but the classifier."""

    @field_validator("steps", "rounds_per_epoch", "cosine", "decay")
    @classmethod
    def _is_one_round_of_epochs(cls, value: float | None, field: ValidationInfo) -> float | None:
        if value != cls.model_fields[str(field.field_name)].default:
            raise ValueError(
                f"the last phase is one round of whole epochs, at one learning rate; leave {field.field_name} out"
            )
        return value


class SourceTraining(UserValues):
    """How the source model is trained: cross-entropy, SGD with momentum, constant learning rate."""

    epochs: NonNegativeInt = 30
    """Passes over the source's training part; the state with the best held-out accuracy is kept."""
    lr: PositiveFloat = 1e-3
    """Learning rate."""
    batch_size: int = Field(64, ge=2)
    """Images per step; a last batch of less than half of it is left out of the epoch, unless it is all there is."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Heavy-ball momentum."""
    weight_decay: NonNegativeFloat = 1e-3
    """L2 decay."""
    smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing; the paper speaks of standard cross-entropy, SHOT uses 0.1."""
    held_out: float = Field(0.1, gt=0, lt=1)
    """Share of the source images kept aside to choose the epoch and to report the accuracy."""


class CentralTraining(UserValues):
    """How a model is trained where all domains are in one place: SGD with momentum, constant learning rate."""

    epochs: PositiveInt | None = None
    """Passes over the largest source; the model after the last is taken. Unset: as many as clients make in all rounds
    over their images."""
    lr: PositiveFloat = 1e-2
    """Learning rate."""
    batch_size: int = Field(64, ge=2)
    """Images of each source and of the target in a step; where domains are pooled, of all together."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Heavy-ball momentum."""
    weight_decay: NonNegativeFloat = 1e-3
    """L2 decay."""

    def as_long_as(self, training: Training, rounds: int) -> CentralTraining:
        """These settings with a number of epochs; one that is set stays.

        Args:
            training: how clients train in a round.
            rounds: number of rounds of the run.

        Raises:
            UsageError: a round is counted in steps, and no number of epochs is set.

        >>> CentralTraining().as_long_as(Training(epochs=5), rounds=36).epochs
        180
        """
        if self.epochs is not None:
            return self
        if training.steps is not None:
            raise UsageError(
                f"rounds of {training.steps} steps do not say how many epochs a central method trains; take "
                "--set central_training.epochs=20, or another number"
            )
        return self.model_copy(update={"epochs": max(1, rounds * training.epochs // training.rounds_per_epoch)})
