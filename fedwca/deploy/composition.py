"""What a client must know of the composition to take part, and which compositions can leave the machine."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError
from torch import Tensor

from fedwca.deploy.protocol import Transport
from fedwca.engine.bank import Layout
from fedwca.engine.loop import Statistics
from fedwca.engine.precision import Precision
from fedwca.engine.randomness import fold, uniform
from fedwca.engine.signature import BankSignatures
from fedwca.engine.task import Training
from fedwca.errors import InvalidConfig, UsageError
from fedwca.experiments.components import registry
from fedwca.kinds import Aggregator, Objective, PseudoLabeler
from fedwca.network import Architecture, Network
from fedwca.registry import Registry, problems
from fedwca.round import Method

Spec = dict[str, Any]


class Composition(BaseModel):
    """The part of a run that clients carry out; nothing about data, clusters or other clients."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: Spec
    """Architecture: its name and fields."""
    aggregator: Spec
    """Name and fields; the client calls `blend` alone."""
    pseudo_labeler: Spec
    """Name and fields."""
    objectives: tuple[Spec, ...]
    """Names and fields."""
    training: Training = Training()
    """Epochs and optimiser."""
    batch_norm: Statistics = "mixed"
    """What becomes of BatchNorm's running statistics when models are mixed."""
    precision: Precision = "fp32"
    """In which clients compute."""
    transport: Transport = "full"
    """Precision of models on the wire; the source model always travels in full."""
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
            model=Registry.dump(model),
            aggregator=Registry.dump(method.aggregator),
            pseudo_labeler=Registry.dump(method.pseudo_labeler),
            objectives=tuple(Registry.dump(objective) for objective in method.objectives),
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
            raise InvalidConfig(problems(error, "composition: ")) from error

    def architecture(self) -> Architecture:
        """The model's architecture."""
        built: Architecture = registry("model").build(self.model)
        return built

    def method(self) -> tuple[Aggregator, PseudoLabeler, tuple[Objective, ...]]:
        """The components; those of a plugin must be installed at the client too."""
        objectives = tuple(registry("objective").build(objective) for objective in self.objectives)
        return (
            registry("aggregator").build(self.aggregator),
            registry("pseudo_labeler").build(self.pseudo_labeler),
            objectives,
        )


class WeightSignatures(BankSignatures):
    """Signatures of clients whose images stay where they are."""

    def styles(self, share: float, images: int) -> Tensor:
        """Refused: image statistics would have to leave the clients."""
        raise UsageError("clusters by the style of clients' images, which do not leave them; take finch or kmeans")


def require_deployable(method: Method, rounds: int, network: Network) -> None:
    """Refuse what makes no sense, or is not possible, with clients on machines of their own.

    Raises:
        UsageError: says why.
    """
    where = f"method {method.name!r} cannot be deployed:"
    if not rounds:
        raise UsageError(f"{where} it has no round; hand the source model out as it is")
    if talking := [o.name for o in method.objectives if type(o).collect is not Objective.collect]:
        raise UsageError(
            f"{where} objective {talking[0]!r} uploads what is no model, which the messages do not carry yet"
        )
    if not method.aggregator.travels:
        raise UsageError(f"{where} no model is sent after the source model; each client can adapt it alone")
    if method.clusterer is None:
        return
    if method.clusterer.oracle:
        raise UsageError(f"{where} clusterer {method.clusterer.name!r} reads the true domains, which no server knows")
    layout = Layout.of(network)
    source, few = layout.read(network), 4
    steps = uniform(fold(["deploy"]), torch.arange(few * layout.width)).view(few, -1).to(source.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            method.clusterer(WeightSignatures(source + 1e-3 * steps, layout, source))
        except UsageError as error:
            raise UsageError(f"{where} clusterer {method.clusterer.name!r}: {error}") from None
