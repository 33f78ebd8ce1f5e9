"""What a client is told to do in a round: how it trains, what it was sent, and what stays the same over its steps."""

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
"""How the purpose begins of what draws an epoch's order of images; its number follows."""


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
    part: int = 0
    """Which of the parts it trains on that `Training.cuts` makes of an epoch."""
    trusted: float = 1.0
    """How far `PseudoLabeler.trusts` its labels, 0 to 1."""
    adaptation: Adaptation | None = None
    """What objectives that go through a step of it take."""
    taught: Mapping[str, Tensor] = field(default_factory=dict)
    """Logits ``[N, M]`` of its images that the server sent, by the names that objectives read them by."""
    factor: float = 1.0
    """This round's learning rates over those that were set; in ``training`` it is in already."""

    @cached_property
    def inner_lr(self) -> float:
        """Size of the adaptation's step."""
        return adaptation_lr(self.adaptation, self.training, self.factor)

    @cached_property
    def rates(self) -> Mapping[str, float]:
        """Learning rates of extra networks by name, where they are not the base network's."""
        found = {} if self.adaptation is None else self.adaptation.rates()
        for objective in self.objectives:
            found |= objective.rates()
        return {name: rate * self.factor for name, rate in found.items()}

    @property
    def idle(self) -> bool:
        """Whether it trains nothing, and re-estimates BatchNorm's statistics alone."""
        return self.trusted == 0

    def cut(self, images: int) -> slice:
        """Places of its part in an epoch's order of that many images; parts are those of `numpy.array_split`.

        Of two clients, the one with more images has no smaller part.
        """
        size, larger = divmod(images, self.training.cuts)
        start = self.part * size + min(self.part, larger)
        return slice(start, start + size + (self.part < larger))

    def steps_of_pass(self, images: int, least: int) -> int:
        """Steps of a pass over so many images; where steps are counted, none for a batch of fewer than ``least``."""
        whole, rest = divmod(images, self.training.batch_size)
        return whole + (rest >= (1 if self.training.steps is None else least))

    def passes(self, images: int, least: int) -> list[int]:
        """Steps of each pass that it makes over so many images in a round.

        Args:
            images: that it trains on.
            least: images that a step needs.
        """
        each = self.steps_of_pass(images, least)
        if self.training.steps is None:
            return [each] * self.training.epochs
        whole, rest = divmod(self.training.steps, each) if each else (0, 0)
        return [each] * whole + [rest] * (rest > 0)

    def count_steps(self, images: int, least: int) -> int:
        """Steps that change a model in a round, of a client with so many images.

        Args:
            images: that it has.
            least: images that a step needs.
        """
        part = self.cut(images)
        own = part.stop - part.start
        passes = self.passes(own, least)
        short = 0 < own % self.training.batch_size < least and self.training.steps is None  # counted, but not taken
        return 0 if self.idle else sum(passes) - short * len(passes)


def adaptation_lr(adaptation: Adaptation | None, training: Training, factor: float = 1.0) -> float:
    """Size of a step of an adaptation: its own, or the training's.

    Args:
        adaptation: None: there is none.
        training: of a round, see `Training.at`.
        factor: that round's learning rates over those that were set.
    """
    return training.lr if adaptation is None or adaptation.lr is None else adaptation.lr * factor


def client_draws(keys: Keys, round: int, client: int, training: Training) -> Callable[[str], int]:
    """A purpose to the key of a client's draws in a round; where an epoch is cut, its parts are those of one order."""
    begun = round - training.part(round)
    return lambda purpose: keys(begun if purpose.startswith(ORDER) else round, client, purpose)


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
