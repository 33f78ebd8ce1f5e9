"""The rounds of a run, begun or resumed: written down and kept as they come, then the summary."""

from __future__ import annotations

import time
from contextlib import suppress

from fedwca.core.plain_values import to_plain
from fedwca.engine.memory import MeasuredMemory
from fedwca.engine.precision import matmul_precision
from fedwca.errors import FedwcaError
from fedwca.runs.finished_run import FinishedRun
from fedwca.runs.how_to_continue import say_how_to_continue
from fedwca.runs.log_to import end_of_run, log_records
from fedwca.runs.memory_estimate import memory_record
from fedwca.runs.prepare_run import PreparedRun
from fedwca.runs.profiling import profiling
from fedwca.runs.reporter import RunReporter
from fedwca.runs.run_trials_and_methods import run_bench
from fedwca.runs.write_summary import write_summary


def execute_run(run: PreparedRun, reporter: RunReporter) -> FinishedRun:
    """Do the rounds that are left.

    Raises:
        FedwcaError: what is wrong, in a sentence; what was done until then is kept, and the run can be continued.
        KeyboardInterrupt: the user stopped it; likewise.
    """
    folder, config, splits = run.folder, run.plan.config, run.splits
    prepared, measured = run.started, MeasuredMemory(run.device)
    folder.write("memory.json", memory_record(run.memory, run.device, None))
    traced = run.plan.methods[-1][0].label if run.profile else None
    try:
        values = config.model_dump(mode="json")
        with log_records(run.loggers, folder.path, values, reporter.warn) as logged:
            with (
                reporter.watch(run.plan) as watched,
                profiling(traced, watched, folder) as progress,
                matmul_precision(config.precision, run.device),
            ):
                given = (config, run.plan.methods, splits.dataset, splits.domain)
                records = run_bench(*given, progress, run.checkpointer, run.schedule, splits)
                for record in run.schedule.merged(records, folder.append, progress):
                    if prepared == run.started:  # the first record comes when the source models are there
                        prepared = time.perf_counter()
                    logged.record(to_plain(record))
            order = [method.name for method, _ in run.plan.methods]
            folder.rewrite(
                lambda _: True, lambda r: (r["source_model"], r["trial"], order.index(r["method"]), r["round"])
            )
            folder.write("memory.json", memory_record(run.memory, run.device, measured.growth()))
            table, summary = write_summary(run, prepared, complete=True)
            if run.loggers:
                logged.end(end_of_run(folder.path, summary, reporter.warn))
    except OSError as error:
        with suppress(OSError):
            write_summary(run, prepared, complete=False)
        raise FedwcaError(
            f"{folder.path}: cannot be written ({error.strerror or error}); what was written is kept, "
            f"{say_how_to_continue(folder.path)}"
        ) from error
    except (FedwcaError, KeyboardInterrupt):
        write_summary(run, prepared, complete=False)
        raise
    return FinishedRun(config, splits.dataset.name, table, summary, folder.path)
