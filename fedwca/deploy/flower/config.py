"""The server's configuration file, and the session that is made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, field_validator, model_validator

from fedwca._deprecated import warn_renamed
from fedwca.config.build_component import architecture
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import validate
from fedwca.core.deployment_files import CONFIG_NAME
from fedwca.datasets import stretches_images
from fedwca.deploy.composition import Composition
from fedwca.deploy.half_precision import Transport
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.session import Session
from fedwca.describe_problems import describe_problems
from fedwca.errors import InvalidConfig
from fedwca.federated.source_model import load_source
from fedwca.user_values import UserValues

RENAMED = {"join": "wait", "patience": "repeats"}
"""Old name of a field, in files of 0.1.0, to its name now."""


class DeploymentConfig(UserValues):
    """``federation.json`` in the server's folder; clients are not sent it."""

    config: dict[str, Any]
    """The run's configuration, as `fedwca bench` resolves it."""
    classes: tuple[str, ...]
    """Names of the M classes."""
    rules: Rules
    """How clients are treated."""
    transport: Transport = "full"
    """Precision of models on the wire."""
    top: float | None = Field(None, gt=0, lt=0.5)
    """Share of an update's entries, the largest, that is uploaded; None: all."""
    feedback: bool = False
    """Whether a client adds the entries it left out to its next update."""
    deadline: PositiveFloat = 600.0
    """Seconds that a round waits for answers; later answers are ignored."""
    wait: PositiveFloat = 600.0
    """Seconds that the server waits for all clients before round 0; then it begins with the connected ones."""
    repeats: PositiveInt = 5
    """How often a round with too few answers is repeated before the run fails."""
    rejoin: bool = False
    """Whether a new node may take the number of one that has disconnected; only for nodes without keys."""

    @model_validator(mode="before")
    @classmethod
    def _take_old_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        renamed = {old: new for old, new in RENAMED.items() if old in values and new not in values}
        for old, new in renamed.items():
            warn_renamed(f"{old!r} in {CONFIG_NAME}", repr(new))
        return {renamed.get(name, name): value for name, value in values.items()}

    @field_validator("rules", mode="before")
    @classmethod
    def _bound_least(cls, rules: Any) -> Any:
        """A file of 0.1.0 may have ``least`` above the number of clients, and a round then needed all of them."""
        if not isinstance(rules, dict):
            return rules
        clients, least = rules.get("clients"), rules.get("least")
        exceeds = isinstance(clients, int) and isinstance(least, int) and 0 < clients < least
        return {**rules, "least": clients} if exceeds else rules

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the configuration from a file.

        Raises:
            InvalidConfig: the file is missing, or a field is wrong; names it.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise InvalidConfig(f"{path}: {error.strerror or error}; make it by fedwca deploy init") from None
        except ValidationError as error:
            raise InvalidConfig(f"{path}: {describe_problems(error)}") from error

    def text(self) -> str:
        """Return the configuration as JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    @property
    def rounds(self) -> int:
        """R, rounds of the run, up to the method's own maximum."""
        return compose(validate(self.config))[-1][1]

    @property
    def composition(self) -> Composition:
        """The description of the method that clients are sent."""
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
        """Return a new session.

        Args:
            source: the file of the source model.

        Raises:
            FedwcaError: the source model does not fit, or the method cannot be deployed.
        """
        method, composition = compose(validate(self.config))[-1][0], self.composition
        model = load_source(source, self.classes, composition.architecture())
        return Session(method, model.network, composition, self.rules)
