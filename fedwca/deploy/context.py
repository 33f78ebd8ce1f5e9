"""What stays the same over all rounds of a federation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from fedwca.core.messages import Bounded
from fedwca.core.network import Network
from fedwca.deploy.composition import Composition
from fedwca.deploy.rules import Rules
from fedwca.engine.layout import Layout
from fedwca.engine.randomness import Keys
from fedwca.federated.round import Method


@dataclass(frozen=True)
class ServerContext:
    """The method that is played, with which source model and under which rules."""

    method: Method
    network: Network
    """The source model with its classifier."""
    composition: Composition
    """What clients are told."""
    rules: Rules

    @cached_property
    def layout(self) -> Layout:
        """Of the model's rows."""
        return Layout.of(self.network)

    @cached_property
    def beside(self) -> Mapping[str, Bounded]:
        """What objectives upload that is no model, by ``<objective>.<name>``."""
        features = self.network.bottleneck.out_features
        return {
            f"{objective.name}.{name}": bounded
            for objective in self.method.objectives
            for name, bounded in objective.declares(self.composition.classes, features).items()
        }

    @property
    def most(self) -> int:
        """Bytes of arrays that no answer exceeds: twice a model, what is uploaded beside it, framing."""
        beside = sum(math.prod(bounded.shape) for bounded in self.beside.values())
        return 4 * (2 * self.layout.width + beside) + 2**20

    @property
    def keys(self) -> Keys:
        """Of the server's draws."""
        return Keys(self.composition.seed, self.composition.trial)

    def mixed(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mixtures ``[..., R]`` of the server's rows, as the composition treats BatchNorm's statistics."""
        return self.composition.batch_norm.mix(weights, rows, self.layout)
