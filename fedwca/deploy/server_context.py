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
from fedwca.deploy.server_rules import Rules
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.federated.server import declare_extras


class ModelSignatures(BankSignatures):
    """Signatures of clients whose images stay where they are."""

    def styles(self, share: float, images: int) -> Tensor:
        """Refused: image statistics would have to leave the clients."""
        raise UsageError("clusters by the style of clients' images, which do not leave them; take finch or kmeans")


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
    def extras(self) -> Mapping[str, Bounded]:
        """What objectives upload that is no model, by ``<objective>.<name>``."""
        features = self.network.features
        return declare_extras(self.method.objectives, self.composition.classes, features)

    @property
    def max_answer_bytes(self) -> int:
        """Bytes of arrays that no answer exceeds: twice a model, what is uploaded beside it, framing."""
        extras = sum(math.prod(bounded.shape) for bounded in self.extras.values())
        return 4 * (2 * self.layout.width + extras) + 2**20

    @property
    def keys(self) -> Keys:
        """Of the server's draws."""
        return Keys(self.composition.seed, self.composition.trial)

    def mix(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mixtures ``[..., R]`` of the server's rows, as the composition treats BatchNorm's statistics."""
        return self.composition.batch_norm.mix(weights, rows, self.layout)

    def signatures(self, models: Tensor, source: Tensor) -> ModelSignatures:
        """What clusters are made of: models of clients ``[N, P]`` after a round from the source model ``[P]``."""
        return ModelSignatures(models, self.layout, source)
