"""Resumes a stopped run from its last checkpoints, with the same results as without the stop."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from fedwca.config.compose_methods import compose
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import validate
from fedwca.errors import UsageError
from fedwca.results.read_run import read_run
from fedwca.results.read_run_files import is_set_up, read_configuration
from fedwca.results.write_run import RunFolder
from fedwca.runs.execute_run import execute_run
from fedwca.runs.finished_run import FinishedRun
from fedwca.runs.log_to import build_loggers
from fedwca.runs.missing_plugins import naming_missing_plugins
from fedwca.runs.prepare_run import ClaimedFolder, prepare_run
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.resuming.how_to_continue import explain_interrupt
from fedwca.runs.resuming.resume_checks import check_same_components, check_same_start_files
from fedwca.runs.resuming.start_files import digest_start_files
from fedwca.runs.run_images import load_same_images, locate_paths
from fedwca.runs.run_request import ONE_PROCESS, RunRanks


def resume_run(
    path: Path,
    reporter: RunReporter = SILENT,
    ranks: RunRanks = ONE_PROCESS,
    profile: bool = False,
    workers: int | None = None,
) -> FinishedRun:
    """Continue the run in a folder; a finished one is read.

    Args:
        path: the run folder.
        reporter: receives progress and warnings.
        ranks: the processes that share the run; this is rank 0.
        profile: profile the remaining rounds, see `fedwca.runs.run_request.RunRequest.profile`.
        workers: clients processed at the same time from now on, which does not change results; None: as the run began.

    Raises:
        UsageError: it cannot be continued, or another process is working on it.
        FedwcaError: its checkpoints, its data or the installed components no longer fit it.
    """
    started = time.perf_counter()
    about = read_configuration(path)
    run = read_run(path)
    if run.is_done():  # read from its folder alone: neither its images nor its components need be there
        if ranks.world is not None:
            ranks.world.everyone.broadcast_object({})  # tells the other ranks that nothing is left to do
        reporter.nothing_left(path)
        return FinishedRun(run)
    with naming_missing_plugins(path):
        config = validate(about["config"])
        if workers is not None:
            config = config.model_copy(update={"workers": workers})
        plan = RunPlan(config, compose(config), dict(about.get("origins", {})))
        loggers = build_loggers(about["loggers"])
    check_same_components(path, about, plan)
    plan = replace(plan, config=locate_paths(config, about, path))
    if is_set_up(about):
        check_same_start_files(path, about, plan.config)
    claimed_about = about if is_set_up(about) else {**about, **digest_start_files(plan.config)}
    with RunFolder(path, again=True) as folder, explain_interrupt(folder, reporter):
        if read_configuration(path) != about or read_run(path).is_done():
            raise UsageError(f"{path}: another process was at work here until now; run this again")
        dataset, domain = load_same_images(plan.config, about, path, pretrained=True)
        claimed = ClaimedFolder(folder, plan.at(domain), dataset, domain, started, claimed_about, loggers, profile)
        return execute_run(prepare_run(claimed, reporter, ranks), reporter)
