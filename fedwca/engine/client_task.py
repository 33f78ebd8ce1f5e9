"""A client's task in a round: the models it was sent, how it trains, and what is constant over its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.core.interfaces import Objective, PseudoLabeler
from fedwca.core.messages import Targets
from fedwca.core.training_settings import Training
from fedwca.engine.randomness import Keys

ORDER = "order "
"""Prefix of the purpose that draws the image order of an epoch; the number of the epoch follows."""


@dataclass(frozen=True)
class SentModels:
    """The models one client was sent, as mixtures of the server's rows."""

    weights: Tensor
    """``[Q+S, R]``"""
    resolve: Callable[[Tensor], Tensor]
    """Turns a mixture of server rows ``[R]`` into this client's model ``[P]``."""
    source: Tensor
    """``[P]``, the source model, which every client was sent before round 0."""

    def mix(self, mixture: Tensor) -> Tensor:
        """The model ``[P]`` that a mixture ``[Q+S]`` of the sent models gives."""
        return self.resolve(mixture.to(self.weights) @ self.weights)


@dataclass(frozen=True)
class Task:
    """What a client does in a round, apart from the model it starts from."""

    labeler: PseudoLabeler
    objectives: Sequence[Objective]
    training: Training
    keys: Callable[[str], int]
    """Maps a purpose to the key of this client's draws in this round."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """Values that the server shares, made from uploads other than models; empty in round 0."""
    part: int = 0
    """Index of the part of an epoch that it trains on; `Training.rounds_per_epoch` says how many parts there are."""
    trusted: float = 1.0
    """Trust in its labels, 0 to 1, as `PseudoLabeler.trust` gives it."""
    adaptation: Adaptation | None = None
    """The method's adaptation, which objectives with ``adapts`` train through; None: there is none."""
    taught: Mapping[str, Tensor] = field(default_factory=dict)
    """Logits ``[N, M]`` that the server sent for its images, by the name under which objectives read them."""
    factor: float = 1.0
    """Learning rates of this round divided by the configured ones; ``training.lr`` already includes it."""
    inner_lr: float = 0.0
    """Step size of the adaptation, see `adaptation_lr`."""

    @cached_property
    def learning_rates(self) -> Mapping[str, float]:
        """Learning rates of extra networks in this round, by name; a network not in it has the base network's."""
        rates = {} if self.adaptation is None else dict(self.adaptation.learning_rates())
        for objective in self.objectives:
            rates |= objective.learning_rates()
        return {name: rate * self.factor for name, rate in rates.items()}

    @property
    def idle(self) -> bool:
        """Whether it trains nothing and only re-estimates the BatchNorm statistics."""
        return self.trusted == 0

    def cut(self, images: int) -> slice:
        """The slice of an epoch's image order that is this task's part, with parts as `numpy.array_split` makes them.

        A client with more images never has a smaller part than a client with fewer.

        Args:
            images: number of images in the epoch.
        """
        size, larger = divmod(images, self.training.rounds_per_epoch)
        start = self.part * size + min(self.part, larger)
        return slice(start, start + size + (self.part < larger))

    def steps_of_pass(self, images: int, least: int) -> int:
        """Number of steps in one pass over ``images`` images.

        With `Training.steps`, a last batch of fewer than ``least`` images is not counted; otherwise it is.
        """
        full_batches, remainder = divmod(images, self.training.batch_size)
        return full_batches + (remainder >= (1 if self.training.steps is None else least))

    def passes(self, images: int, least: int) -> list[int]:
        """Number of steps of each pass over the images in a round.

        Args:
            images: number of images that it trains on.
            least: smallest number of images that a step needs.
        """
        steps_per_pass = self.steps_of_pass(images, least)
        if self.training.steps is None:
            return [steps_per_pass] * self.training.epochs
        full_passes, remaining_steps = divmod(self.training.steps, steps_per_pass) if steps_per_pass else (0, 0)
        return [steps_per_pass] * full_passes + [remaining_steps] * (remaining_steps > 0)

    def count_steps(self, images: int, least: int) -> int:
        """Number of steps that change the model in a round.

        Args:
            images: number of images that the client has.
            least: smallest number of images that a step needs.
        """
        part = self.cut(images)
        part_size = part.stop - part.start
        passes = self.passes(part_size, least)
        # `passes` counts a last batch that is too small, but no step is taken on it.
        skips_last = 0 < part_size % self.training.batch_size < least and self.training.steps is None
        return 0 if self.idle else sum(passes) - skips_last * len(passes)


def adaptation_lr(adaptation: Adaptation | None, training: Training, round: int) -> float:
    """Step size of an adaptation in a round: its own learning rate, or the training's if it sets none, with `decay`.

    Args:
        adaptation: None if there is none.
        training: how clients train, with its schedule.
        round: its number, from 0.
    """
    lr = training.lr if adaptation is None or adaptation.lr is None else adaptation.lr
    return lr * training.decayed(round)


def client_draws(keys: Keys, round: int, client: int, training: Training) -> Callable[[str], int]:
    """A function from a purpose to the key of a client's draws in a round.

    Where an epoch is cut into parts, all of them use the image order of the epoch's first round.
    """
    first_round = round - training.part(round)
    return lambda purpose: keys(first_round if purpose.startswith(ORDER) else round, client, purpose)


@dataclass(frozen=True)
class EpochContext:
    """What is constant over the steps between two labellings."""

    targets: Targets
    taught: Mapping[str, Tensor]
    """Logits ``[N, M]`` of the plain images by frozen models, by name."""
    anchors: Mapping[str, Tensor]
    """Trained parameters ``[P]`` of the models that penalties compare with, by name."""
    observed: Mapping[str, Tensor]
    shared: Mapping[str, Tensor]
