"""The request for a run, and the processes that share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedwca.config.resolve_config import RunPlan, resolve_plan
from fedwca.config.run_config import Layer
from fedwca.engine.distributed.process_group import RankWorld
from fedwca.results.unit import Unit
from fedwca.runs.ranks.ranks_per_trial import per_trial


@dataclass(frozen=True)
class RunRequest:
    """The request for a run, as configuration layers that are not merged yet."""

    layer: Layer
    """Values as fields of `fedwca.config.run_config.RunConfig`."""
    pairs: Sequence[tuple[str, str]] = ()
    """Fields of components by dotted key, such as ``("aggregator.ta", "0.05")``."""
    preset: str = "default"
    file: Path | None = None
    """TOML or JSON file; the layer overrides its values."""
    out: Path | None = None
    """The run folder; None: a new one in ``runs/``."""
    keep: str = "last"
    """Checkpoints to keep: ``last``, ``all``, ``selected``, ``none`` or a number."""
    loggers: Sequence[Any] = ()
    """Additional destinations of the records, each as ``name:field=value``."""
    reuse: bool = False
    """Continue the run in ``out`` if it has this configuration; a finished one is returned at once."""
    note: str = ""
    """The user's note on the run; without effect on it."""
    tags: Sequence[str] = ()
    """The user's tags, by which runs can be listed."""
    profile: bool = False
    """Write the seconds of each phase and a trace of one round to the run folder."""
    said: Mapping[str, str] = field(default_factory=dict)
    """Dotted keys that a command or an option such as ``--quick`` set, with the name of that command or option."""
    tried: Sequence[tuple[str, str]] = ()
    """Like ``pairs``, which it overrides: the values that a search tries."""

    checked: bool = False
    """Whether a request for a superset of these methods has already passed the checks, see `resolve_plan`."""

    def plan(self) -> RunPlan:
        """Merge and check the layers; see `fedwca.config.resolve_config.resolve_plan`.

        Raises:
            UsageError: unknown names, invalid values, or components that do not fit each other.
        """
        plan = resolve_plan(self.layer, self.pairs, self.preset, self.file, tried=self.tried, checked=self.checked)
        origins = {
            key: self.said.get(key, origin) if origin == "CLI" else origin for key, origin in plan.origins.items()
        }
        return replace(plan, origins=origins)


@dataclass(frozen=True)
class RunRanks:
    """The processes that share a run: this one alone, or those that ``torchrun`` started."""

    world: RankWorld | None = None
    per_trial: int | None = None
    """Ranks that share the clients of a trial; None: see `fedwca.runs.ranks.ranks_per_trial.per_trial`."""

    def divide(self, units: Mapping[Unit, int]) -> tuple[int, int]:
        """Number of subgroups of ranks, and of ranks in each; a subgroup shares the clients of a trial.

        Args:
            units: units that remain, with their number of rounds.
        """
        if self.world is None:
            return 1, 1
        size = per_trial(self.world.size, sum(rounds > 0 for rounds in units.values()), self.per_trial)
        return self.world.size // size, size


ONE_PROCESS = RunRanks()
