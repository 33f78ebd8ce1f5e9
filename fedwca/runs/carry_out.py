"""The work of a run, begun or continued: rounds that are written down and kept as they come, then the summary."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import typer

from fedwca.runs.log_to import log_records
from fedwca.cli.profiling import profiling
from fedwca.cli.progress import watching
from fedwca.data.dataset import FederatedDataset
from fedwca.engine.memory import MemoryEstimate
from fedwca.engine.precision import matmul_precision
from fedwca.errors import FedwcaError
from fedwca.runs.bench import run_bench
from fedwca.runs.round_state import FileCheckpointer
from fedwca.runs.memory_estimate import MeasuredMemory, memory_record
from fedwca.config.layers import RunPlan
from fedwca.runs.schedule import Schedule
from fedwca.loggers import Logger
from fedwca.results.pictures import overview
from fedwca.results.run import run_title
from fedwca.results.run_folder import RunFolder, to_plain
from fedwca.results.summary import Row, table_rows, summarise


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended."""

    plan: RunPlan
    dataset: FederatedDataset
    table: list[Row]
    summary: dict[str, Any]
    """What ``summary.json`` holds."""
    path: Path
    """The run folder."""


@dataclass(frozen=True)
class PreparedRun:
    """A run that is decided, checked, and has its folder."""

    folder: RunFolder
    plan: RunPlan
    dataset: FederatedDataset
    source: str
    domains: Sequence[str]
    """True domain of each client, K names."""
    keeper: FileCheckpointer
    started: float
    """``time.perf_counter()`` when the command began."""
    loggers: Sequence[Logger] = ()
    as_json: bool = False
    quiet: bool = False
    profile: bool = False
    share: Schedule = field(default_factory=Schedule)
    """What this process does; others' records come to it."""
    needed: MemoryEstimate | None = None
    """Bytes by the estimate."""
    device: str = "cpu"
    before: float = 0.0
    """Seconds that earlier processes spent on the rounds there are."""


def carry_out(work: PreparedRun) -> FinishedRun:
    """Do the rounds that are left, with progress unless the request wants JSON alone.

    Raises:
        FedwcaError: what is wrong, in a sentence; what was done until then is kept, and the run can be continued.
    """
    folder, config, prepared = work.folder, work.plan.config, work.started
    measured = MeasuredMemory(work.device)
    if work.needed is not None:
        folder.write("memory.json", memory_record(work.needed, work.device, None))
    traced = work.plan.methods[-1][0].label if work.profile else None
    try:
        values = config.model_dump(mode="json")
        with (
            watching(work.plan, silent=work.as_json, quiet=work.quiet) as watched,
            profiling(traced, watched, folder) as progress,
            log_records(work.loggers, folder.path, values, progress.warn) as log,
            matmul_precision(config.precision, work.device),
        ):
            share, given = work.share, (config, work.plan.methods, work.dataset, work.source)
            for record in share.merged(run_bench(*given, progress, work.keeper, share), folder.append, progress):
                if prepared == work.started:  # the first record comes when the source models are there
                    prepared = time.perf_counter()
                log(to_plain(record))
        order = [method.name for method, _ in work.plan.methods]
        folder.rewrite(lambda r: True, lambda r: (r["source_model"], r["trial"], order.index(r["method"]), r["round"]))
        if work.needed is not None:
            folder.write("memory.json", memory_record(work.needed, work.device, measured.growth()))
        table, summary = finish(work, prepared, complete=True)
    except OSError as error:
        with suppress(OSError):
            finish(work, prepared, complete=False)
        raise FedwcaError(
            f"{folder.path}: cannot be written ({error.strerror or error}); what was written is kept, continue with: "
            f"fedwca resume {quote(str(folder.path))}"
        ) from error
    except FedwcaError:
        finish(work, prepared, complete=False)
        raise
    except KeyboardInterrupt:
        finish(work, prepared, complete=False)
        done = sum(record["round"] >= 0 for record in folder.records())
        rounds = "1 round is" if done == 1 else f"{done} rounds are"
        how = f"fedwca resume {quote(str(folder.path))}"
        typer.echo(f"Stopped; {rounds} kept in {folder.path}, with a summary; continue with: {how}", err=True)
        raise typer.Exit(130) from None
    return FinishedRun(work.plan, work.dataset, table, summary, folder.path)


def finish(work: PreparedRun, prepared: float, complete: bool) -> tuple[list[Row], dict[str, Any]]:
    """Write the summary and the pictures; returns the table's rows and the summary."""
    folder, decided = work.folder, work.plan
    records = folder.records()
    table = tabulate(decided, records, work.domains)
    seconds = dict.fromkeys((method.name for method, _ in decided.methods), 0.0)
    for record in records:
        seconds[record["method"]] += seconds_spent(record)
    now = time.perf_counter()
    summary = {
        "methods": summarise(table),
        "config": decided.config.model_dump(mode="json"),
        "timing": {
            "total_seconds": now - work.started + work.before,
            "setup_seconds": prepared - work.started,
            "run_seconds": now - prepared + work.before,
            "methods": seconds,
        },
        "complete": complete,
    }
    if table:
        draw_picture(work, records, summary["methods"])
    # Last, for it says that the run is complete.
    folder.write("summary.json", summary)
    return table, json.loads((folder.path / "summary.json").read_text())


def seconds_spent(record: dict[str, Any]) -> float:
    """Seconds of a round and its evaluation, by the clock."""
    seconds = record.get("seconds", {})
    return float(seconds.get("round", 0.0) + seconds.get("evaluate", 0.0))


def tabulate(decided: RunPlan, records: Sequence[dict[str, Any]], domains: Sequence[str]) -> list[Row]:
    """The table's rows, in the order of the plan's methods."""
    return table_rows(records, {method.name: method.label for method, _ in decided.methods}, domains)


def draw_picture(work: PreparedRun, records: Sequence[dict[str, Any]], results: dict[str, Any]) -> None:
    """Write ``overview.png``; where that fails, a warning says so, since a picture must not cost the table."""
    c, file = work.plan.config, work.folder.path / "overview.png"
    try:
        overview(records, results, file, run_title(work.dataset.name, c.source, c.clients, c.rounds, c.seed))
    except Exception as error:  # whatever a plotting library makes of this machine's settings
        warnings.warn(f"{file}: the picture could not be drawn ({error}); draw it with fedwca plot", stacklevel=2)
