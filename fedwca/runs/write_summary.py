"""What a run came to: the table's rows, ``summary.json``, and the picture of it all."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.config.resolve_config import RunPlan
from fedwca.results.pictures import overview
from fedwca.results.read_run import read_run
from fedwca.results.table_rows import Row, summarise, table_rows
from fedwca.runs.prepare_run import PreparedRun
from fedwca.runs.round_record import seconds_spent


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
    summary: dict[str, Any] = {
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
        draw_picture(run, records, summary["methods"])
    # Last, for it says that the run is complete.
    folder.write("summary.json", summary)
    return table, json.loads((folder.path / "summary.json").read_text(encoding="utf-8"))


def tabulate(plan: RunPlan, records: Sequence[dict[str, Any]], domains: Sequence[str]) -> list[Row]:
    """The table's rows, in the order of the plan's methods."""
    return table_rows(records, {method.name: method.label for method, _ in plan.methods}, domains)


def draw_picture(run: PreparedRun, records: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> None:
    """Write ``overview.png``; where that fails, a warning says so, since a picture must not cost the table."""
    file = run.folder.path / "overview.png"
    try:
        overview(records, results, file, read_run(run.folder.path).title)
    except Exception as error:  # whatever a plotting library makes of this machine's settings
        warnings.warn(f"{file}: the picture could not be drawn ({error}); the results are whole", stacklevel=2)
