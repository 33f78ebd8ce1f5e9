"""A run that was stopped goes on where it stood, to the same numbers."""

from __future__ import annotations

import time
from pathlib import Path

from fedwca.config.compose_methods import compose
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import restore_config
from fedwca.errors import UsageError
from fedwca.results.read_run import read_run
from fedwca.results.run_schemas import is_set_up, read_configuration, read_records
from fedwca.results.write_run import RunFolder
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.execute_run import FinishedRun, execute_run
from fedwca.runs.load_data import load
from fedwca.runs.log_to import build_loggers
from fedwca.runs.prepare_run import OpenRunFolder, kind_of_device, prepare_run
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.resume_checks import refuse_other_components, refuse_other_images, warn_of_other_device
from fedwca.runs.run_request import ONE_PROCESS, RunRanks
from fedwca.runs.write_summary import tabulate


def resume_run(path: Path, reporter: RunReporter = SILENT, ranks: RunRanks = ONE_PROCESS) -> FinishedRun:
    """Continue the run in a folder; one that is finished is read.

    Args:
        path: the run folder.
        reporter: told how it goes.
        ranks: the processes that share it; this is the first of them.

    Raises:
        UsageError: it cannot be continued, or another process is at work on it.
        FedwcaError: its checkpoints, its data or what is installed do not fit it any more.
    """
    started = time.perf_counter()
    about = read_configuration(path)
    config = restore_config(about["config"])
    plan = RunPlan(config, compose(config), dict(about.get("origins", {})))
    if about.get("schema", 1) < 2:
        raise UsageError(f"{path}: was run before checkpoints were kept (schema 1), so it cannot be continued")
    refuse_other_components(path, about, plan)
    if read_run(path).state == "done":
        if ranks.world is not None:
            ranks.world.everyone.give({})  # nothing for anybody
        dataset, _ = load(config)
        summary = dict(read_run(path).summary)
        reporter.nothing_left(path)
        return FinishedRun(plan, dataset, tabulate(plan, read_records(path), about["domains"]), summary, path)
    loggers = build_loggers(about["loggers"])
    with RunFolder(path, again=True) as folder:
        dataset, source = load(config)
        given = (dataset, source, started, about["keep"], loggers)
        if not is_set_up(about):
            return execute_run(prepare_run(OpenRunFolder(folder, plan.at(source), *given), reporter, ranks), reporter)
        opened = OpenRunFolder(folder, plan, *given, earlier=about)
        refuse_other_images(path, about, dataset)
        warn_of_other_device(about, kind_of_device(resolve_device(config.device), ranks), reporter)
        return execute_run(prepare_run(opened, reporter, ranks), reporter)
