"""What a client must know of the composition to take part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from fedwca.config.component_registries import registry_of
from fedwca.core.messages import NormLayers
from fedwca.core.network import Architecture
from fedwca.core.training_settings import Precision, Training
from fedwca.deploy.half_precision import Transport
from fedwca.describe_problems import describe_problems
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.errors import InvalidConfig
from fedwca.federated.method import Method
from fedwca.registry import Registry
from fedwca.user_values import UserValues

Spec = dict[str, Any]


class Composition(UserValues):
    """The part of a run that clients carry out; nothing about data, clusters or other clients."""

    method: str = ""
    """Name of the method, for what is said of its models; an earlier release did not tell it."""
    label: str = ""
    """What tables call the method."""
    model: Spec
    """Architecture: its name and fields."""
    aggregator: Spec
    """Name and fields; the client calls `blend` alone."""
    pseudo_labeler: Spec
    """Name and fields."""
    objectives: tuple[Spec, ...]
    """Names and fields."""
    moments: NormLayers | None = None
    """BatchNorm layers whose moments a client uploads once, to be grouped by; None: none."""
    training: Training = Training()
    """Epochs and optimiser."""
    batch_norm: BatchNormPolicy = BatchNormPolicy.MIXED
    """What becomes of BatchNorm's running statistics when models are mixed."""
    precision: Precision = "fp32"
    """In which clients compute."""
    transport: Transport = "full"
    """Precision of models on the wire; the source model always travels in full."""
    top: float | None = Field(None, gt=0, lt=0.5)
    """Share of an update's entries that is uploaded, the largest; None: all. An entry takes twice a number's bytes."""
    feedback: bool = False
    """Whether a client adds what it left out to its next update."""
    stretch: bool = False
    """Whether image files are stretched to squares, as the source's were; else cropped around the centre."""
    names: tuple[str, ...] = ()
    """Names of the M classes; a client needs them to use its model. Empty: 0, 1, …"""
    classes: PositiveInt
    """M."""
    seed: NonNegativeInt = 0
    """Of all draws."""
    trial: NonNegativeInt = 0
    """As in `fedwca.engine.randomness.Keys`."""

    @classmethod
    def of(cls, method: Method, model: Architecture, classes: int, **more: Any) -> Composition:
        """The clients' part of a method."""
        return cls(
            method=method.name,
            label=method.label,
            model=model.without_folders(),
            aggregator=Registry.dump(method.aggregator),
            pseudo_labeler=Registry.dump(method.pseudo_labeler),
            objectives=tuple(Registry.dump(objective) for objective in method.objectives),
            moments=None if method.clusterer is None else method.clusterer.norm_layers,
            classes=classes,
            **more,
        )

    @classmethod
    def read(cls, text: str) -> Composition:
        """From JSON.

        Raises:
            InvalidConfig: an unknown field or a value out of its bounds.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InvalidConfig(describe_problems(error, "composition: ")) from error

    def architecture(self) -> Architecture:
        """The model's architecture."""
        built: Architecture = registry_of("model").build(self.model)
        return built

    def plays_as(self, other: Composition) -> bool:
        """Whether both say the same, where one may not name a field that a later version has, with its default."""
        named = {"method", "label", "model", "aggregator", "pseudo_labeler", "objectives"}
        mine, theirs = (each.model_dump(exclude=named) for each in (self, other))
        if mine != theirs or replace(self.build(), name="", label="") != replace(other.build(), name="", label=""):
            return False
        return self.architecture().without_folders() == other.architecture().without_folders()

    def build(self) -> Method:
        """The clients' part of the method; components of a plugin must be installed at the client too."""
        return Method(
            name=self.method,
            label=self.label,
            aggregator=registry_of("aggregator").build(self.aggregator),
            pseudo_labeler=registry_of("pseudo_labeler").build(self.pseudo_labeler),
            objectives=tuple(registry_of("objective").build(objective) for objective in self.objectives),
        )
