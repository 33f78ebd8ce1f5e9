"""A run from request to table: checks first, then rounds that are written down as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.config.compose_methods import partition_of
from fedwca.config.resolve_config import RunPlan
from fedwca.core.plain_values import to_plain
from fedwca.errors import FedwcaError, InvalidConfig
from fedwca.loggers import Logger
from fedwca.registry import Registry
from fedwca.results.change_notes import change_notes, check_tags
from fedwca.results.checkpoints import RetentionPolicy
from fedwca.results.lock import hold_lock
from fedwca.results.read_run_files import is_set_up, read_configuration
from fedwca.results.write_run import RunFolder
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.execute_run import execute_run
from fedwca.runs.finished_run import FinishedRun
from fedwca.runs.how_to_continue import telling_what_is_kept
from fedwca.runs.load_data import load
from fedwca.runs.log_to import build_loggers
from fedwca.runs.prepare_run import ClaimedFolder, PreparedRun, describe_request, prepare_run
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.resume_checks import check_same_request, with_canonical_domain
from fedwca.runs.resume_run import resume_run
from fedwca.runs.run_folder_name import new_run_path
from fedwca.runs.run_request import ONE_PROCESS, RunRanks, RunRequest


def start_run(request: RunRequest, reporter: RunReporter = SILENT, ranks: RunRanks = ONE_PROCESS) -> FinishedRun:
    """Check everything that can be checked, then run.

    Args:
        request: what is asked for.
        reporter: told how it goes.
        ranks: the processes that share it; this is the first of them.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been trained by then where it could be known before.
        KeyboardInterrupt: the user stopped it; what was done is kept, and the run can be continued.
    """
    started = time.perf_counter()
    plan, loggers = plan_run(request)
    path = request.out or new_run_path(plan.methods[-1][0].name)
    if (path / "config.json").is_file() and (request.reuse or was_killed_in_set_up(path)):
        check_same_request(path, plan)
        warn_of_other_recording(path, request, loggers, reporter)
        hold_lock(path).release()  # who is refused leaves no note
        take_notes(path, request)
        workers = plan.config.workers if plan.origins.get("workers") == "CLI" else None
        return resume_run(path, reporter, ranks, request.profile, workers)
    with RunFolder(path) as folder, telling_what_is_kept(folder, reporter):
        prepared = set_up_run(folder, request, plan, loggers, started, reporter, ranks)
        return execute_run(prepared, reporter)


def check_run(request: RunRequest, reporter: RunReporter = SILENT) -> RunPlan:
    """All that `start_run` does before the first round: the plan, its checks and estimates. Nothing stays on disk.

    Args:
        request: what is asked for.
        reporter: told what would be run.

    Raises:
        FedwcaError: why it could not be.
    """
    started = time.perf_counter()
    plan, loggers = plan_run(request)
    with RunFolder(request.out or new_run_path(plan.methods[-1][0].name)) as folder:
        try:
            return set_up_run(folder, request, plan, loggers, started, reporter, ONE_PROCESS).plan
        finally:
            folder.discard(set_up=True)


def plan_run(request: RunRequest) -> tuple[RunPlan, list[Logger]]:
    """What is asked for, decided as far as it can be without images.

    Raises:
        FedwcaError: what is wrong, in a sentence.
    """
    plan = request.plan()
    loggers = check_recording(request, plan)
    resolve_device(plan.config.device)
    return plan, loggers


def check_recording(request: RunRequest, plan: RunPlan) -> list[Logger]:
    """What a run is to leave beside its numbers can be left; returns its loggers.

    Raises:
        UsageError: checkpoints that no such run keeps, a logger that is not there, or a tag that is none.
    """
    policy, loggers = RetentionPolicy.parse(request.keep), build_loggers(request.loggers)
    check_tags(request.tags)
    if policy.selected and (not partition_of(plan.config).newcomers or plan.config.validation == 0):
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
    """From a claimed folder to a run that can set out; where it cannot, nothing stays.

    Args:
        folder: where.
        request: what is asked for.
        plan: of the same.
        loggers: where numbers go, too.
        started: ``time.perf_counter()`` when it was asked for.
        reporter: told how it goes.
        ranks: the processes that share it.

    Raises:
        FedwcaError: what is wrong, in a sentence.
    """
    try:
        # First of all: whatever kills this process from here on, the folder says what it was for.
        about = describe_request(with_canonical_domain(plan), folder.path, request.keep, loggers)
        folder.write("config.json", about)
        take_notes(folder.path, request)
        reporter.loading(plan.config.dataset)
        dataset, domain = load(plan.config)
        given = (dataset, domain, started, to_plain(about), loggers, request.profile)
        return prepare_run(ClaimedFolder(folder, plan.at(domain), *given), reporter, ranks)
    except BaseException:
        folder.discard()
        raise


def take_notes(path: Path, request: RunRequest) -> None:
    """Write down the note and the tags that a run is given, if it is given any; see `change_notes`."""
    if request.note or request.tags:
        change_notes(path, request.note or None, request.tags)


def warn_of_other_recording(path: Path, request: RunRequest, loggers: Sequence[Logger], reporter: RunReporter) -> None:
    """Say where a run that goes on leaves other things beside its numbers than are asked for now."""
    about, asked = read_configuration(path), to_plain([Registry.dump(logger) for logger in loggers])
    pairs = [
        (f"--keep {about.get('keep', 'last')}", f"--keep {request.keep}"),
        (describe_loggers(about.get("loggers", ())), describe_loggers(asked)),
    ]
    if (at_once := request.layer.get("trials_at_once")) is not None:
        began = about["config"].get("trials_at_once")
        pairs.append((f"--trials-at-once {began}", f"--trials-at-once {at_once}"))
    for there, here in pairs:
        if there != here:
            reporter.warn(f"{path}: was begun with {there} and stays so; asked for now: {here}")


def describe_loggers(dumped: Sequence[Mapping[str, Any]]) -> str:
    """Loggers as options, from what ``config.json`` says of them.

    >>> describe_loggers([{"name": "wandb", "project": "fedwca", "entity": None}])
    '--logger wandb:project=fedwca'
    """
    found = []
    for one in dumped:
        fields = ",".join(f"{key}={value}" for key, value in one.items() if key != "name" and value is not None)
        found.append(f"--logger {one.get('name')}" + (f":{fields}" if fields else ""))
    return " ".join(found) or "no --logger"


def was_killed_in_set_up(path: Path) -> bool:
    """Whether a folder holds no more than what a run was to be."""
    try:
        return not is_set_up(read_configuration(path))
    except FedwcaError:
        return False  # damaged: it may have been more
