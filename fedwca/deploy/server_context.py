"""What stays the same over all rounds of a federation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from fedwca.core.messages import Bounded, NormLayers
from fedwca.core.network import Network
from fedwca.deploy.composition import Composition
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.wire_messages import MOMENTS
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.input_moments import count_moments
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.federated.server import declare_collected

FARTHEST = 100.0
"""Largest root mean square of moments that is believed, in deviations of the source's inputs."""


class ModelSignatures(BankSignatures):
    """Signatures of clients whose images stay where they are."""

    def styles(self, share: float, images: int) -> Tensor:
        """Refused: image statistics would have to leave the clients."""
        raise UsageError("clusters by the style of clients' images, which do not leave them; take finch or kmeans")

    def moments(self, layers: NormLayers) -> Tensor:
        """Those that clients uploaded ``[K, F]`` float64, which they do where the clusterer names the layers."""
        if layers not in self.measured:
            raise UsageError("clusters by moments that it does not name in norm_layers, so that no client uploads them")
        return self.measured[layers].double()


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
    def source(self) -> Mapping[str, Tensor]:
        """The source model with its classifier, as it travels."""
        return {name: tensor.cpu() for name, tensor in self.network.state_dict().items()}

    @cached_property
    def collected(self) -> Mapping[str, Bounded]:
        """What objectives upload that is no model, by ``<objective>.<name>``."""
        features = self.network.features
        return declare_collected(self.method.objectives, self.composition.classes, features)

    @cached_property
    def moments(self) -> Mapping[str, Bounded]:
        """What a client uploads once to be grouped by, by the name it has among what is beside its model."""
        layers = self.composition.moments
        size = 0 if layers is None else count_moments(self.network, layers)
        return {MOMENTS: Bounded((size,), FARTHEST * math.sqrt(size))} if size else {}

    @property
    def max_answer_bytes(self) -> int:
        """Bytes of arrays that no answer exceeds: twice a model, what is uploaded beside it, framing."""
        collected = sum(math.prod(bounded.shape) for bounded in (*self.collected.values(), *self.moments.values()))
        return 4 * (2 * self.layout.width + collected) + 2**20

    @property
    def keys(self) -> Keys:
        """Of the server's draws."""
        return Keys(self.composition.seed, self.composition.trial)

    def mix(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mixtures ``[..., R]`` of the server's rows, as the composition treats BatchNorm's statistics."""
        return self.composition.batch_norm.mix(weights, rows, self.layout)

    def signatures(self, models: Tensor, source: Tensor, moments: Tensor | None = None) -> ModelSignatures:
        """What clusters are made of: models of clients ``[N, P]`` after a round from the source model ``[P]``, and the
        moments they uploaded ``[N, F]``.
        """
        layers = self.composition.moments
        measured = {} if layers is None or moments is None else {str(layers): moments}
        return ModelSignatures(models, self.layout, source, measured=measured)
