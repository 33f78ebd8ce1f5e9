"""What a run came to: the table's rows, ``summary.json``, and the picture of it all."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.config.layers import RunPlan
from fedwca.results.pictures import overview
from fedwca.results.summary import Row, summarise, table_rows
from fedwca.runs.run_stages import PreparedRun


def write_summary(run: PreparedRun, prepared: float, complete: bool) -> tuple[list[Row], dict[str, Any]]:
    """Write the summary and the picture; returns the table's rows and the summary.

    Args:
        run: what was done, or as much of it as there is.
        prepared: ``time.perf_counter()`` when the first record came.
        complete: whether it ran to its end.
    """
    folder, plan = run.folder, run.plan
    records = folder.records()
    table = tabulate(plan, records, run.domains)
    seconds = dict.fromkeys((method.name for method, _ in plan.methods), 0.0)
    for record in records:
        seconds[record["method"]] += seconds_spent(record)
    now = time.perf_counter()
    summary = {
        "methods": summarise(table),
        "config": plan.config.model_dump(mode="json"),
        "timing": {
            "total_seconds": now - run.started + run.before,
            "setup_seconds": prepared - run.started,
            "run_seconds": now - prepared + run.before,
            "methods": seconds,
        },
        "complete": complete,
    }
    if table:
        overview(records, table, folder.path / "overview.png", run_title(plan, run.splits.dataset.name))
    # Last, for it says that the run is complete.
    folder.write("summary.json", summary)
    return table, json.loads((folder.path / "summary.json").read_text())


def seconds_spent(record: Mapping[str, Any]) -> float:
    """Seconds of a round and its evaluation, by the clock."""
    seconds = record.get("seconds", {})
    return float(seconds.get("round", 0.0) + seconds.get("evaluate", 0.0))


def tabulate(plan: RunPlan, records: Sequence[dict[str, Any]], domains: Sequence[str]) -> list[Row]:
    """The table's rows, in the order of the plan's methods."""
    return table_rows(records, {method.name: method.label for method, _ in plan.methods}, domains)


def run_title(plan: RunPlan, name: str) -> str:
    """What was run, in a line."""
    config = plan.config
    who = f"{config.clients} clients per target domain"
    return f"{name}, source {config.source}, {who}, {config.rounds} rounds, seed {config.seed}"
