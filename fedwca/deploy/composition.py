"""The description of a method that clients need to take part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from fedwca._version import __version__
from fedwca.config.component_registries import registry_of
from fedwca.core.architecture import Architecture
from fedwca.core.messages import NormLayers
from fedwca.core.training_settings import Precision, Training
from fedwca.deploy.half_precision import Transport
from fedwca.deploy.wire_messages import VERSION, Parcel
from fedwca.describe_problems import describe_problems
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.errors import FedwcaError, InvalidConfig
from fedwca.federated.method import Method
from fedwca.registry import Registry
from fedwca.user_values import UserValues

Spec = dict[str, Any]


class Composition(UserValues):
    """The part of a run that clients carry out; it says nothing about data, clusters or other clients."""

    method: str = ""
    """Name of the method, for model descriptions; empty in compositions of an earlier release."""
    label: str = ""
    """Name of the method in tables."""
    model: Spec
    """Architecture: its name and fields."""
    aggregator: Spec
    """Name and fields; a client only calls its `blend`."""
    pseudo_labeler: Spec
    """Name and fields."""
    objectives: tuple[Spec, ...]
    """Names and fields."""
    moments: NormLayers | None = None
    """BatchNorm layers whose moments a client uploads once, to be clustered by; None: none."""
    training: Training = Training()
    """Epochs and optimiser."""
    batch_norm: BatchNormPolicy = BatchNormPolicy.MIXED
    """How BatchNorm's running statistics are mixed."""
    precision: Precision = "fp32"
    """Precision of the clients' computation."""
    transport: Transport = "full"
    """Precision of models on the wire; the source model always travels in full."""
    top: float | None = Field(None, gt=0, lt=0.5)
    """Share of an update's entries, the largest, that is uploaded beside the first layer and BatchNorm's statistics;
    None: all. Each entry takes 4 bytes for its position beside its value."""
    feedback: bool = False
    """Whether a client adds the entries it left out to its next update."""
    stretch: bool = False
    """Whether image files are stretched to squares, as the source's were; else cropped around the centre."""
    names: tuple[str, ...] = ()
    """Names of the M classes; a client needs them to use its model. Empty: 0, 1, …"""
    classes: PositiveInt
    """M, number of classes."""
    seed: NonNegativeInt = 0
    """Seed of all random draws."""
    trial: NonNegativeInt = 0
    """Trial, as in `fedwca.engine.randomness.Keys`."""

    @classmethod
    def of(cls, method: Method, model: Architecture, classes: int, **settings: Any) -> Composition:
        """Return the clients' part of a method; ``settings`` are further fields."""
        return cls(
            method=method.name,
            label=method.label,
            model=model.shareable_values(),
            aggregator=Registry.dump(method.aggregator),
            pseudo_labeler=Registry.dump(method.pseudo_labeler),
            objectives=tuple(Registry.dump(objective) for objective in method.objectives),
            moments=None if method.clusterer is None else method.clusterer.norm_layers,
            classes=classes,
            **settings,
        )

    @classmethod
    def read(cls, text: str) -> Composition:
        """Read a composition from JSON.

        Raises:
            InvalidConfig: there is an unknown field, or a value out of its bounds.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InvalidConfig(describe_problems(error, "composition: ")) from error

    def architecture(self) -> Architecture:
        """Build the model's architecture."""
        built: Architecture = registry_of("model").build(self.model)
        return built

    def plays_as(self, other: Composition) -> bool:
        """Return whether both describe the same run.

        A component's field that one of them lacks, because a later version added it, counts as its default, and so do
        names of classes. Name and label of the method are not compared.
        """
        component_fields = {"method", "label", "model", "aggregator", "pseudo_labeler", "objectives"}
        excluded = component_fields if self.names and other.names else {*component_fields, "names"}
        dump, other_dump = (composition.model_dump(exclude=excluded) for composition in (self, other))
        if dump != other_dump or replace(self.build(), name="", label="") != replace(other.build(), name="", label=""):
            return False
        return self.architecture().shareable_values() == other.architecture().shareable_values()

    def build(self) -> Method:
        """Build the clients' part of the method; a plugin's components must be installed at the client too."""
        return Method(
            name=self.method,
            label=self.label,
            aggregator=registry_of("aggregator").build(self.aggregator),
            pseudo_labeler=registry_of("pseudo_labeler").build(self.pseudo_labeler),
            objectives=tuple(registry_of("objective").build(objective) for objective in self.objectives),
        )


def read_composition(parcel: Parcel) -> Composition:
    """Return the composition in a parcel that holds the source model.

    Raises:
        FedwcaError: this client cannot build it; if the server has another version, the error names both versions.
    """
    try:
        composition = Composition.read(str(parcel.notes["composition"]))
        composition.architecture()
        composition.build()
    except FedwcaError as error:
        version = parcel.notes.get(VERSION, "an earlier version")
        if version == __version__:
            raise
        raise FedwcaError(
            f"this client has fedwca {__version__} and cannot do what the server, which has {version}, asks; install "
            f"the server's version here ({error})"
        ) from error
    return composition
