"""Starts a run: checks and sets it up, then runs its rounds; or resumes the run in the requested folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.config.build_component import partition_of
from fedwca.config.resolve_config import RunPlan
from fedwca.core.plain_values import to_plain
from fedwca.errors import FedwcaError, InvalidConfig
from fedwca.loggers import Logger
from fedwca.registry import Registry
from fedwca.results.change_notes import change_notes, check_tags
from fedwca.results.lock import hold_lock
from fedwca.results.read_run_files import is_set_up, read_configuration
from fedwca.results.retention_policy import RetentionPolicy
from fedwca.results.write_run import RunFolder
from fedwca.runs.execute_run import execute_run
from fedwca.runs.finished_run import FinishedRun
from fedwca.runs.load_data import load
from fedwca.runs.log_to import build_loggers
from fedwca.runs.prepare_run import ClaimedFolder, PreparedRun, describe_request, prepare_run
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resuming.how_to_continue import explain_interrupt
from fedwca.runs.resuming.resume_checks import check_same_request, with_canonical_domain
from fedwca.runs.resuming.resume_run import resume_run
from fedwca.runs.run_folder_name import new_run_path
from fedwca.runs.run_request import ONE_PROCESS, RunRanks, RunRequest


def start_run(request: RunRequest, reporter: RunReporter = SILENT, ranks: RunRanks = ONE_PROCESS) -> FinishedRun:
    """Check everything that can be checked, then run.

    Args:
        request: the requested run.
        reporter: receives progress and warnings.
        ranks: the processes that share the run; this is rank 0.

    Raises:
        FedwcaError: the request is wrong or the run fails; wrong requests are found before training where possible.
        KeyboardInterrupt: the user stopped the run; finished rounds are kept, and it can be continued.
    """
    started = time.perf_counter()
    plan, loggers = plan_run(request)
    path = request.out or new_run_path(plan.methods[-1][0].name)
    if (path / "config.json").is_file() and (request.reuse or was_killed_in_set_up(path)):
        check_same_request(path, plan)
        warn_of_other_recording(path, request, loggers, reporter)
        hold_lock(path).release()  # raises if the run is in use, before notes are changed
        take_notes(path, request)
        workers = plan.config.workers if plan.origins.get("workers") == "CLI" else None
        return resume_run(path, reporter, ranks, request.profile, workers)
    with RunFolder(path) as folder, explain_interrupt(folder, reporter):
        prepared = set_up_run(folder, request, plan, loggers, started, reporter, ranks)
        return execute_run(prepared, reporter)


def check_run(request: RunRequest, reporter: RunReporter) -> RunPlan:
    """Do all that `start_run` does before the first round, and leave nothing on disk; returns the plan.

    Args:
        request: the requested run.
        reporter: receives the description of the run.

    Raises:
        FedwcaError: the run could not start.
    """
    started = time.perf_counter()
    plan, loggers = plan_run(request)
    with RunFolder(request.out or new_run_path(plan.methods[-1][0].name)) as folder:
        try:
            return set_up_run(folder, request, plan, loggers, started, reporter, ONE_PROCESS).plan
        finally:
            folder.discard(set_up=True)


def plan_run(request: RunRequest) -> tuple[RunPlan, list[Logger]]:
    """The plan and the loggers of a request, with all checks that need no images.

    Raises:
        FedwcaError: the request is wrong.
    """
    plan = request.plan()
    loggers = check_recording(request, plan)
    resolve_device(plan.config.device)
    return plan, loggers


def check_recording(request: RunRequest, plan: RunPlan) -> list[Logger]:
    """Check what a run is to record besides its results: checkpoints, tags and loggers; returns the loggers.

    Raises:
        UsageError: checkpoints that such a run cannot keep, an unknown logger, or an invalid tag.
    """
    policy, loggers = RetentionPolicy.parse(request.keep), build_loggers(request.loggers)
    check_tags(request.tags)
    if policy.selected and (not partition_of(plan.config).has_newcomers or plan.config.validation == 0):
        raise InvalidConfig(
            f"--keep {request.keep}: in this run no round is selected by clients' validation images, and tables show "
            "the last; take last"
        )
    return loggers


def set_up_run(
    folder: RunFolder,
    request: RunRequest,
    plan: RunPlan,
    loggers: Sequence[Logger],
    started: float,
    reporter: RunReporter,
    ranks: RunRanks,
) -> PreparedRun:
    """Load the data and prepare a run in a claimed folder; on failure, what was written there is removed.

    Args:
        folder: the run folder, locked by this process.
        request: the requested run.
        plan: the plan of the request.
        loggers: the loggers of the request.
        started: ``time.perf_counter()`` when the run was requested.
        reporter: receives progress and warnings.
        ranks: the processes that share the run.

    Raises:
        FedwcaError: the run cannot start.
    """
    try:
        # Written first, so that the folder says what it was for even if this process is killed.
        about = describe_request(with_canonical_domain(plan), folder.path, request.keep, loggers)
        folder.write("config.json", about)
        take_notes(folder.path, request)
        reporter.loading(plan.config.dataset)
        dataset, domain = load(plan.config)
        claim_args = (dataset, domain, started, to_plain(about), loggers, request.profile)
        return prepare_run(ClaimedFolder(folder, plan.at(domain), *claim_args), reporter, ranks)
    except BaseException:
        folder.discard()
        raise


def take_notes(path: Path, request: RunRequest) -> None:
    """Write the request's note and tags, if it has any; see `change_notes`."""
    if request.note or request.tags:
        change_notes(path, request.note or None, request.tags)


def warn_of_other_recording(path: Path, request: RunRequest, loggers: Sequence[Logger], reporter: RunReporter) -> None:
    """Warn if ``--keep``, the loggers or ``--trials-at-once`` of a resumed run differ from those requested now."""
    about, requested_loggers = read_configuration(path), to_plain([Registry.dump(logger) for logger in loggers])
    pairs = [
        (f"--keep {about.get('keep', 'last')}", f"--keep {request.keep}"),
        (describe_loggers(about.get("loggers", ())), describe_loggers(requested_loggers)),
    ]
    if (at_once := request.layer.get("trials_at_once")) is not None:
        asked_first = about["config"].get("trials_at_once")
        original = about.get("trials_at_once", asked_first)  # at most the run's number of trials
        if at_once != asked_first:
            stored_option = f"--trials-at-once {original}" if original else "no --trials-at-once"
            pairs.append((stored_option, f"--trials-at-once {at_once}"))
    for stored, requested in pairs:
        if stored != requested:
            reporter.warn(f"{path}: was begun with {stored} and stays so; asked for now: {requested}")


def describe_loggers(dumped: Sequence[Mapping[str, Any]]) -> str:
    """Loggers as command-line options, from their entries in ``config.json``.

    >>> describe_loggers([{"name": "wandb", "project": "fedwca", "entity": None}])
    '--logger wandb:project=fedwca'
    """
    options = []
    for logger in dumped:
        fields = ",".join(f"{key}={value}" for key, value in logger.items() if key != "name" and value is not None)
        options.append(f"--logger {logger.get('name')}" + (f":{fields}" if fields else ""))
    return " ".join(options) or "no --logger"


def was_killed_in_set_up(path: Path) -> bool:
    """Whether the run in a folder was killed before it was set up."""
    try:
        return not is_set_up(read_configuration(path))
    except FedwcaError:
        return False  # damaged: the run may have been set up
