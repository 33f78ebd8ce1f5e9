"""A run that was stopped goes on where it stood, to the same numbers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from fedwca.config.compose_methods import compose
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import RunConfig, restore_config
from fedwca.errors import UsageError
from fedwca.results.describe_run import data_name
from fedwca.results.read_run import Run, read_run
from fedwca.results.read_run_files import read_configuration
from fedwca.results.write_run import RunFolder
from fedwca.runs.execute_run import execute_run
from fedwca.runs.finished_run import FinishedRun
from fedwca.runs.how_to_continue import telling_what_is_kept
from fedwca.runs.log_to import build_loggers
from fedwca.runs.prepare_run import ClaimedFolder, prepare_run
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.resume_checks import check_same_components
from fedwca.runs.run_images import load_same_images, locate_paths
from fedwca.runs.run_request import ONE_PROCESS, RunRanks


def resume_run(
    path: Path,
    reporter: RunReporter = SILENT,
    ranks: RunRanks = ONE_PROCESS,
    profile: bool = False,
    workers: int | None = None,
) -> FinishedRun:
    """Continue the run in a folder; one that is finished is read.

    Args:
        path: the run folder.
        reporter: told how it goes.
        ranks: the processes that share it; this is the first of them.
        profile: see `fedwca.runs.run_request.RunRequest.profile`; of what is left.
        workers: clients at the same time, of what is left, which changes no number; None: as the run began.

    Raises:
        UsageError: it cannot be continued, or another process is at work on it.
        FedwcaError: its checkpoints, its data or what is installed do not fit it any more.
    """
    started = time.perf_counter()
    about = read_configuration(path)
    config = restore_config(about["config"])
    if about.get("schema", 1) < 2:
        raise UsageError(f"{path}: was run before checkpoints were kept (schema 1), so it cannot be continued")
    if read_run(path).state == "done":
        if ranks.world is not None:
            ranks.world.everyone.broadcast_object({})  # nothing for anybody
        reporter.nothing_left(path)
        return reopen_finished(read_run(path), config)
    if workers is not None:
        config = config.model_copy(update={"workers": workers})
    plan = RunPlan(config, compose(config), dict(about.get("origins", {})))
    check_same_components(path, about, plan)
    plan = replace(plan, config=locate_paths(config, about, path))
    loggers = build_loggers(about["loggers"])
    with RunFolder(path, again=True) as folder, telling_what_is_kept(folder, reporter):
        dataset, domain = load_same_images(plan.config, about, path)
        claimed = ClaimedFolder(folder, plan.at(domain), dataset, domain, started, about, loggers, profile)
        return execute_run(prepare_run(claimed, reporter, ranks), reporter)


def reopen_finished(run: Run, config: RunConfig) -> FinishedRun:
    """What a finished run came to, from its folder alone: neither its images nor its components need to be there."""
    name = run.about.get("dataset_name") or data_name(config.dataset, config.data)
    return FinishedRun(config, name, run.table, dict(run.summary), run.path)
