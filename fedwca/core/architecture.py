"""Architectures build networks; users choose one with ``--model``."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from fedwca.component import Component, code_digest
from fedwca.core.backbone import Backbone, describe_wrong_attribute
from fedwca.core.component_answers import describe_value
from fedwca.core.network import Head, Network, initial_weights
from fedwca.errors import UsageError

Side = Annotated[int, Field(ge=1, le=4096)]
"""Height and width in pixels."""
Width = Annotated[int, Field(ge=1, le=65_536)]
"""Number of units or channels of a layer."""


class Architecture(Component):
    """Builds networks; its fields describe everything after the backbone."""

    side: Side = 32
    """Height and width in pixels of what the backbone reads."""
    bottleneck: Width = 256
    """q, width of the feature that the classifier reads; not read with head direct, where q is the backbone's width."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Probability of dropping a bottleneck unit."""
    classifier: Literal["linear", "wn"] = "linear"
    """Plain linear layer, or one with weight normalisation as in SHOT."""
    activation: Literal["none", "relu"] = "none"
    """What follows the bottleneck's BatchNorm or, with head direct, the backbone; not read with head hidden."""
    head: Head = "bottleneck"
    """What is between backbone and classifier: bottleneck, a fully connected layer with BatchNorm; hidden, one with
    ReLU; direct, nothing."""

    @property
    def stored_side(self) -> int:
        """Height and width in pixels at which images are kept; more than ``side`` leaves room for crops."""
        return self.side

    @abstractmethod
    def backbone(self) -> Backbone:
        """A freshly initialised backbone."""

    @property
    def size_variants(self) -> tuple[Architecture, ...]:
        """The architecture at each of its sizes, smallest first; every client has one of them.

        The last one builds the same network as this architecture. Without sizes, it is the only one.
        """
        return (self,)

    def load_pretrained(self, backbone: Backbone) -> None:
        """Load pre-trained weights into a new backbone; by default there are none.

        Raises:
            CheckpointError: the weights are missing or do not fit.
        """

    def identity(self) -> dict[str, Any]:
        """Everything that determines the result of `build`, as plain values; a weights file by its content."""
        fields = {"name": self.name, **self.model_dump(mode="json"), **code_digest(type(self))}
        # Defaults are left out, so that source models made before these fields existed are recognised.
        defaults: dict[str, Any] = {"activation": "none", "head": "bottleneck", "sizes": [], "augment": True}
        return {name: value for name, value in fields.items() if name not in defaults or value != defaults[name]}

    def shareable_values(self) -> dict[str, Any]:
        """The architecture as plain values that `Registry.build` accepts, for others to read.

        A weights file is given by its name alone, because its folder is private.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        files = {name: value.name for name, value in fields.items() if isinstance(value, Path)}
        return {"name": self.name, **self.model_dump(mode="json"), **files}

    def build(self, classes: int, seed: int = 0, pretrained: bool = True, trains_classifier: bool = False) -> Network:
        """A network with initial weights drawn from ``seed``; the global generator is left as it was.

        Args:
            classes: M.
            seed: of the weights that are not pre-trained.
            pretrained: False where all weights will be replaced, so that pre-trained ones need not exist.
            trains_classifier: whether clients train the classifier too; it changes no weight.

        Raises:
            UsageError: `backbone` gives no backbone, one without ``out_features``, or one whose `mean`, `std` or
                `shortcuts` is wrong.
            CheckpointError: pre-trained weights are not there or do not fit.
        """
        with initial_weights(seed):
            backbone: object = self.backbone()
            if not isinstance(backbone, Backbone) or not hasattr(backbone, "out_features"):
                description = describe_value(backbone)
                raise UsageError(
                    f"model {self.name!r}: backbone gave {description}; right is a Backbone that sets out_features"
                )
            if problem := describe_wrong_attribute(backbone):
                raise UsageError(f"model {self.name!r}: its backbone's {problem}")
            if pretrained:
                self.load_pretrained(backbone)
            sizes = (self.bottleneck, self.dropout, classes)
            network = Network(
                *(backbone, *sizes, self.classifier, self.side, self.activation, trains_classifier, self.head)
            )
        return network.to(memory_format=torch.channels_last)
