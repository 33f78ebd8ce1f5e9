"""The server's file: what is played, with which source model, under which rules; and the session made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import validate
from fedwca.datasets import stretches_images
from fedwca.deploy.composition import Composition
from fedwca.deploy.half_precision import Transport
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.session import Session
from fedwca.describe_problems import describe_problems
from fedwca.errors import InvalidConfig
from fedwca.federated.source_model import load_source
from fedwca.runs.load_data import architecture
from fedwca.user_values import UserValues


class DeploymentConfig(UserValues):
    """``federation.json`` of an app folder; stays with the server."""

    config: dict[str, Any]
    """Of the composition, as `fedwca bench` resolves it."""
    classes: tuple[str, ...]
    """Names of the M classes."""
    rules: Rules
    """How clients are treated."""
    transport: Transport = "full"
    """Precision of models on the wire."""
    top: float | None = Field(None, gt=0, lt=0.5)
    """Share of an update's entries that is uploaded, the largest; None: all."""
    feedback: bool = False
    """Whether a client adds what it left out to its next update."""
    deadline: PositiveFloat = 600.0
    """Seconds a round waits for answers; who is later is absent."""
    join: PositiveFloat = 600.0
    """Seconds the server waits for all clients before round 0; then it begins with those there are."""
    patience: PositiveInt = 5
    """How often a round is played again for want of answers before the run fails."""
    rejoin: bool = False
    """Whether a new node may take the place of one that is gone; only where nodes have no keys."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file.

        Raises:
            InvalidConfig: it is missing or wrong; says where.
        """
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidConfig(f"{path}: {error.strerror or error}; make it by fedwca deploy init") from None
        except ValidationError as error:
            raise InvalidConfig(describe_problems(error, f"{path.name}: ")) from error

    def text(self) -> str:
        """As JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    @property
    def rounds(self) -> int:
        """R."""
        return validate(self.config).rounds

    @property
    def composition(self) -> Composition:
        """What clients are told."""
        config = validate(self.config)
        method = compose(config)[-1][0]
        return Composition.of(
            method,
            architecture(config),
            len(self.classes),
            stretch=stretches_images(config.dataset),
            names=self.classes,
            training=method.training_in(config.training),
            batch_norm=config.batch_norm,
            precision=config.precision,
            transport=self.transport,
            top=self.top,
            feedback=self.feedback,
            seed=config.seed,
        )

    def session(self, source: Path) -> Session:
        """A session from this file and the source model beside it.

        Raises:
            FedwcaError: the source model does not fit, or the method cannot be deployed.
        """
        method, rounds = compose(validate(self.config))[-1]
        found = load_source(source, self.classes, self.composition.architecture())
        assert rounds
        return Session(method, found.network, self.composition, self.rules)
