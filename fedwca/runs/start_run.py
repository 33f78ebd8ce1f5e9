"""A run from request to table: checks first, then rounds that are written down as they come."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path

from fedwca.data.dataset import canonical_domain
from fedwca.results.checkpoints import RetentionPolicy
from fedwca.results.write_run import RunFolder
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.execute_run import FinishedRun, execute_run
from fedwca.runs.load_data import load
from fedwca.runs.log_to import build_loggers
from fedwca.runs.prepare_run import OpenRunFolder, prepare_run
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.resume_run import refuse_other_request, resume_run
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
    RetentionPolicy.parse(request.keep)
    loggers = build_loggers(request.loggers)
    plan = request.plan()
    resolve_device(plan.config.device)
    path = request.out or new_run_path(plan.methods[-1][0].name)
    if request.reuse and (path / "config.json").is_file():
        source = canonical_domain(plan.config.source or load(plan.config)[1])
        refuse_other_request(path, plan.at(source))
        return resume_run(path, reporter, ranks)
    with RunFolder(path) as folder:
        try:
            dataset, source = load(plan.config)
            given = (dataset, source, started, request.keep, loggers, request.profile)
            opened = OpenRunFolder(folder, plan.at(source), *given)
            prepared = prepare_run(opened, reporter, ranks)
        except BaseException:
            if not (path / "config.json").exists():
                folder.discard()
            raise
        return execute_run(prepared, reporter)


def new_run_path(name: str) -> Path:
    """Where a run goes that is given no folder: named after the time and what is run."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
    # Whatever a method is called, its run is a folder in runs/, with a name that can be typed.
    return Path("runs") / f"{stamp}-{re.sub(r'[^a-zA-Z0-9.,:=+()_-]+', '_', name)[:80]}"
