"""Output of ``fedwca show``."""

from __future__ import annotations

from typing import Any

from fedwca.results.json_output.printed_values import PrintedValues


class ShownComponent(PrintedValues):
    """Output of ``fedwca show KIND NAME --json``."""

    kind: str
    """Kind of component, such as aggregator."""
    name: str
    """Name of the component on the command line."""
    paper: str
    """Paper and equation it comes from. Empty if there is none."""
    about: str | None
    """Description of the component."""
    fields: dict[str, dict[str, Any]]
    """JSON schema of each field, by its name."""


class ShownTable(PrintedValues):
    """Output of ``fedwca show training --json`` and the like."""

    name: str
    """Name of the table in a configuration; ``run`` for the fields that are in no table."""
    about: str | None
    """What the table decides."""
    fields: dict[str, dict[str, Any]]
    """JSON schema of each field, by its name."""


class ShownBaseline(PrintedValues):
    """Output of ``fedwca show baseline NAME --json``."""

    label: str
    """Name of the baseline in tables."""
    paper: str
    """Where the method is published."""
    reading: str
    """What the publication leaves open, and how it is decided here."""
    aggregator: str
    """Name of its aggregator."""
    pseudo_labeler: str
    """Name of its pseudo-labeler."""
    objectives: list[str]
    """Names of its objectives."""
    clusterer: str | None
    """Name of its clusterer. Null if there is none."""
    adaptation: str | None = None
    """Name of the adaptation that models take on the images that they predict. Null if there is none."""
    central: str | None
    """Name of the central method that trains the start model. Null if clients start from the common start model."""
    finish: list[str]
    """Names of the objectives of the last phase, in which clients without labels train."""
    components: dict[str, dict[str, dict[str, Any]]]
    """Fields that the method fixes, by kind and name of the component."""
    training: dict[str, Any]
    """Training settings that the method fixes for its rounds."""
    finish_training: dict[str, Any]
    """Training settings that the method fixes for the last phase."""
    rounds: int | None
    """Largest number of rounds. Null if the run decides."""
