"""The values of a federation that stay the same over all rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
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
from fedwca.federated.collected_values import declare_collected
from fedwca.federated.method import Method

FARTHEST = 100.0
"""Largest root mean square of uploaded moments that is accepted, in standard deviations of the source's inputs."""


class ModelSignatures(BankSignatures):
    """Signatures of clients from their models and uploaded moments; their images are not available."""

    def styles(self, share: float, images: int) -> Tensor:
        """Always refuse: image statistics would have to be uploaded.

        Raises:
            UsageError: always.
        """
        raise UsageError("clusters by the style of clients' images, which do not leave them; take finch or kmeans")

    def moments(self, layers: NormLayers) -> Tensor:
        """Return a copy of the moments that clients uploaded ``[K, F]`` float64.

        Raises:
            UsageError: none were uploaded for these layers, because the clusterer's ``norm_layers`` does not name them.
        """
        if layers not in self.measured:
            raise UsageError("clusters by moments that it does not name in norm_layers, so that no client uploads them")
        return self.measured[layers].to(torch.float64, copy=True)


@dataclass(frozen=True)
class ServerContext:
    """The method of a federation, its source model, and its rules."""

    method: Method
    network: Network
    """The source model with its classifier."""
    composition: Composition
    """The description of the method that clients are sent."""
    rules: Rules

    @cached_property
    def layout(self) -> Layout:
        """Layout of a model's row ``[P]``."""
        return Layout.of(self.network)

    @cached_property
    def source(self) -> Mapping[str, Tensor]:
        """Tensors of the source model with its classifier, on the CPU, as they are sent."""
        return {name: tensor.cpu() for name, tensor in self.network.state_dict().items()}

    @cached_property
    def collected(self) -> Mapping[str, Bounded]:
        """Shapes and bounds of what objectives upload beside models, by ``<objective>.<name>``."""
        features = self.network.features
        return declare_collected(self.method.objectives, self.composition.classes, features)

    @cached_property
    def moments(self) -> Mapping[str, Bounded]:
        """Shape and bound of the moments that a client uploads once, by `MOMENTS`; empty if none are uploaded."""
        layers = self.composition.moments
        size = 0 if layers is None else count_moments(self.network, layers)
        return {MOMENTS: Bounded((size,), FARTHEST * math.sqrt(size))} if size else {}

    @property
    def max_answer_bytes(self) -> int:
        """Largest accepted size of an answer's arrays: twice a model, what is uploaded beside it, and framing."""
        collected = sum(math.prod(bounded.shape) for bounded in (*self.collected.values(), *self.moments.values()))
        return 4 * (2 * self.layout.width + collected) + 2**20

    @property
    def keys(self) -> Keys:
        """Keys of the server's random draws."""
        return Keys(self.composition.seed, self.composition.trial)

    def mix(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Return mixtures ``[..., P]`` of the server's rows, with BatchNorm statistics mixed as the composition says.

        Args:
            weights: ``[..., R]``.
            rows: ``[R, P]``.
        """
        return self.composition.batch_norm.mix(weights, rows, self.layout)

    def signatures(self, models: Tensor, source: Tensor, moments: Tensor | None = None) -> ModelSignatures:
        """Return the signatures that clients are clustered by.

        Args:
            models: the clients' models after a round from the source model ``[N, P]``.
            source: the source model ``[P]``.
            moments: the moments they uploaded ``[N, F]``; None: none.
        """
        layers = self.composition.moments
        measured = {} if layers is None or moments is None else {str(layers): moments}
        return ModelSignatures(models, self.layout, source, measured=measured)
