"""Runs the rounds of a new or resumed run, writes each record as it comes, then writes the summary."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from textwrap import shorten

import torch

from fedwca.core.plain_values import to_plain
from fedwca.core.printable import quote_path
from fedwca.engine.memory import MeasuredMemory
from fedwca.engine.precision import matmul_precision
from fedwca.errors import FedwcaError, Unwritable, describe_os_error, first_line
from fedwca.results.read_run import read_run
from fedwca.runs.finished_run import FinishedRun
from fedwca.runs.log_to import end_of_run, log_records
from fedwca.runs.prepare_run import PreparedRun
from fedwca.runs.profiling import profiling
from fedwca.runs.records.round_record import seconds_spent
from fedwca.runs.reporter import RunReporter
from fedwca.runs.resources.memory_estimate import memory_record
from fedwca.runs.resuming.how_to_continue import say_how_to_continue
from fedwca.runs.run_trials_and_methods import run_bench
from fedwca.runs.write_summary import write_summary


def execute_run(run: PreparedRun, reporter: RunReporter) -> FinishedRun:
    """Run the remaining rounds and write the summary.

    Raises:
        FedwcaError: a round or writing failed; finished rounds are kept, and the run can be continued.
        KeyboardInterrupt: the user stopped the run; likewise.
    """
    folder, config = run.folder, run.plan.config
    rounds_began_at: float | None = None
    memory = MeasuredMemory(run.device)
    traced_label = run.plan.methods[-1][0].label if run.profile else None
    try:
        folder.write("memory.json", memory_record(run.memory, run.device, None))
        values = config.model_dump(mode="json")
        with log_records(run.loggers, folder.path, values, reporter.warn) as log_session:
            with (
                reporter.watch(run.plan) as plain_progress,
                profiling(traced_label, plain_progress, folder) as progress,
                matmul_precision(config.precision, run.device),
            ):
                records = run_bench(config, run.plan.methods, run.splits, progress, run.checkpointer, run.schedule)
                for record in run.schedule.merged(records, folder.append, progress):
                    if rounds_began_at is None:  # the first record; it comes when its round has ended
                        rounds_began_at = max(run.started, time.perf_counter() - seconds_spent(record))
                    if run.loggers:
                        log_session.on_record(to_plain(record))
            order = [method.name for method, _ in run.plan.methods]
            folder.rewrite(
                lambda _: True, lambda r: (r["source_model"], r["trial"], order.index(r["method"]), r["round"])
            )
            folder.write("memory.json", memory_record(run.memory, run.device, memory.growth()))
            write_summary(run, rounds_began_at, complete=True)
            finished = FinishedRun(read_run(folder.path))
            if run.loggers:
                log_session.on_end(end_of_run(folder.path, finished.summary, reporter.warn))
    except (OSError, Unwritable) as error:
        summarise_unfinished(run, rounds_began_at)
        sentence = describe_os_error(error, "reading or writing failed") if isinstance(error, OSError) else str(error)
        raise FedwcaError(f"{sentence}; what was written is kept, {say_how_to_continue(folder.path)}") from error
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "DefaultCPUAllocator" not in str(error):
            raise
        summarise_unfinished(run, rounds_began_at)
        device = run.device if isinstance(error, torch.OutOfMemoryError) else "cpu"
        reason, path = shorten(first_line(error), 160, placeholder=" …"), folder.path
        raise FedwcaError(
            f"memory ran out on {device} ({reason}); what was written is kept, {say_how_to_continue(path)} or, "
            "with one client at a time, "
            f"fedwca bench --config {quote_path(path / 'config.json')} --out {quote_path(path)} --resume "
            "--workers 1; in a new run a smaller --batch-size or fewer --clients take less memory"
        ) from error
    except (FedwcaError, KeyboardInterrupt):
        summarise_unfinished(run, rounds_began_at)
        raise
    return finished


def summarise_unfinished(run: PreparedRun, rounds_began_at: float | None) -> None:
    """Write the summary of a run that was stopped or failed; that this fails, too, must not replace the reason.

    A run that is complete stays so: it was stopped while its loggers ended.
    """
    with suppress(OSError, MemoryError, FedwcaError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not read_run(run.folder.path).complete:
            write_summary(run, rounds_began_at, complete=False)
