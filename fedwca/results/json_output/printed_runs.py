"""Output of ``fedwca runs``."""

from __future__ import annotations

from typing import Any, Literal

from fedwca.results.json_output.printed_bench import MethodResults
from fedwca.results.json_output.printed_values import Percent, PrintedValues


class ListedRun(PrintedValues):
    """A run folder that can be read, as ``fedwca runs --json`` lists it."""

    run: str
    """Name of the run folder."""
    path: str
    """Path of the run folder."""
    method: str
    """Name of the composed method in tables."""
    data: str
    """Data set, with the source or target domain if there is one."""
    accuracy: Percent
    """Mean accuracy of the composed method, in percent. Null if nothing could be measured."""
    time: str
    """When the run was started, in the format of ISO 8601."""
    state: Literal["done", "stopped", "running"]
    """Whether the run is finished, stopped or still running."""
    note: str = ""
    """The user's note."""
    tags: list[str] = []
    """The user's tags."""


class DamagedRun(PrintedValues):
    """A run folder that cannot be read, as ``fedwca runs --json`` lists it."""

    run: str
    """Name of the run folder."""
    path: str
    """Path of the run folder."""
    state: Literal["damaged"]
    """Says that the folder cannot be read."""
    problem: str
    """A sentence that says what is wrong."""


class ShownRun(ListedRun):
    """Output of ``fedwca runs show --json``."""

    command: str | None = None
    """The command line that started the run."""
    commit: str | None = None
    """Commit of the code in the working directory. A ``+`` at its end means that files differed from it."""
    config: dict[str, Any]
    """The resolved configuration."""
    methods: dict[str, MethodResults]
    """Results by name of the method. Empty as long as there is no result."""
    rounds_done: dict[str, int]
    """Number of finished rounds by name of the method, summed over its runs."""


class RunDifferences(PrintedValues):
    """Output of ``fedwca runs diff --json``: values of the first and of the second run folder."""

    settings: dict[str, tuple[Any, Any]]
    """Settings in which the two differ, by dotted key."""
    accuracy: dict[str, tuple[Percent, Percent]]
    """Mean accuracy in percent of each method that both have, by its name."""
