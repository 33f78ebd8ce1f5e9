"""Writes a run's results: the table's rows, ``summary.json`` and the overview picture."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.core.printable import quote_path
from fedwca.results.pictures import overview
from fedwca.results.read_run import read_run
from fedwca.results.table_rows import run_summary, table_rows
from fedwca.runs.prepare_run import PreparedRun
from fedwca.runs.records.round_record import seconds_spent
from fedwca.warn_caller import warn_caller


def write_summary(run: PreparedRun, rounds_began_at: float | None, complete: bool) -> None:
    """Write the summary and the picture.

    Args:
        run: the run, finished or not.
        rounds_began_at: ``time.perf_counter()`` when this process began its first round; None: it began none.
        complete: whether the run is finished.
    """
    folder, plan = run.folder, run.plan
    records = folder.records()
    table = table_rows(records, {method.name: method.label for method, _ in plan.methods}, run.domains)
    seconds = dict.fromkeys((method.name for method, _ in plan.methods), 0.0)
    for record in records:
        seconds[record["method"]] += seconds_spent(record)
    now = time.perf_counter()
    began = now if rounds_began_at is None else rounds_began_at
    total, setup = now - run.started + run.before, began - run.started
    summary = run_summary(table, plan.config.model_dump(mode="json"), seconds, total, setup, complete)
    if table:
        draw_picture(run, records, summary["methods"])
    # Written last, since it marks the run as complete.
    folder.write("summary.json", summary)


def draw_picture(run: PreparedRun, records: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> None:
    """Write ``overview.png``; a failure only warns, so that the table is not lost."""
    file = run.folder.path / "overview.png"
    try:
        kept = read_run(run.folder.path)
        overview(records, results, file, kept.title, kept.first_models)
    except Exception as error:  # a plotting library may fail in any way
        command = f"fedwca plot {quote_path(run.folder.path)} overview"
        warn_caller(
            f"{file}: the picture could not be drawn ({error}); the results are whole, and {command} draws it",
        )
