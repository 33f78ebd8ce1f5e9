"""What is asked for when a run is begun, and the processes that share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedwca.config.resolve_config import RunPlan, resolve_plan
from fedwca.config.run_config import Layer
from fedwca.engine.distributed.process_group import RankWorld


@dataclass(frozen=True)
class RunRequest:
    """What is asked for, as layers that are not put over one another yet."""

    layer: Layer
    """Values as fields of `fedwca.config.run_config.RunConfig`."""
    pairs: Sequence[tuple[str, str]] = ()
    """Fields of components by dotted key, such as ``("aggregator.ta", "0.05")``."""
    preset: str = "default"
    file: Path | None = None
    """TOML or JSON with values that stand below the layer."""
    out: Path | None = None
    """The run folder; None: a new one in ``runs/``."""
    keep: str = "last"
    """Checkpoints that stay: ``last``, ``all``, ``selected``, ``none`` or a number."""
    loggers: Sequence[Any] = ()
    """Where numbers go besides the run folder, each as ``name:field=value``."""
    reuse: bool = False
    """Continue the run in ``out`` if one of this very configuration is there; a finished one is returned at once."""
    note: str = ""
    """What the user says of the run; it decides nothing."""
    tags: Sequence[str] = ()
    """Words that the user finds it by."""
    profile: bool = False
    """Keep where the time went, and a trace of one round, in the run folder."""
    said: Mapping[str, str] = field(default_factory=dict)
    """Dotted keys of the layer that a command or one of its options set, such as ``--quick``, with its name."""
    tried: Sequence[tuple[str, str]] = ()
    """Like ``pairs``, and put over them: what a search tries."""

    checked: bool = False
    """Whether a request for more methods, of which these are some, was found right: see `resolve_plan`."""

    def plan(self) -> RunPlan:
        """The layers put over one another; see `fedwca.config.resolve_config.resolve_plan`.

        Raises:
            UsageError: unknown names, bad values, or parts that do not fit each other.
        """
        found = resolve_plan(self.layer, self.pairs, self.preset, self.file, tried=self.tried, checked=self.checked)
        origins = {
            key: self.said.get(key, origin) if origin == "CLI" else origin for key, origin in found.origins.items()
        }
        return replace(found, origins=origins)


@dataclass(frozen=True)
class RunRanks:
    """The processes that share a run: this one alone, or those that ``torchrun`` started."""

    world: RankWorld | None = None
    per_trial: int | None = None
    """Ranks that share the clients of a trial; None: trials first."""


ONE_PROCESS = RunRanks()
