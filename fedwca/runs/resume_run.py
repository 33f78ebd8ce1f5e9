"""A run that was stopped goes on where it stood, to the same numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedwca.config.compose_methods import compose
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import RunConfig, restore_config
from fedwca.data.dataset import canonical_domain
from fedwca.errors import UsageError
from fedwca.results.compare_runs import differing_settings
from fedwca.results.read_run import Run, data_name, read_run
from fedwca.results.run_schemas import is_set_up, read_configuration
from fedwca.results.write_run import RunFolder
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.execute_run import FinishedRun, execute_run
from fedwca.runs.load_data import load
from fedwca.runs.log_to import build_loggers
from fedwca.runs.prepare_run import OpenRunFolder, kind_of_device, prepare_run
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.run_images import load_same_images, locate_paths
from fedwca.runs.run_request import ONE_PROCESS, RunRanks


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
    if about.get("schema", 1) < 2:
        raise UsageError(f"{path}: was run before checkpoints were kept (schema 1), so it cannot be continued")
    if read_run(path).state == "done":
        if ranks.world is not None:
            ranks.world.everyone.give({})  # nothing for anybody
        reporter.nothing_left(path)
        return reopen_finished(read_run(path), config)
    plan = RunPlan(config, compose(config), dict(about.get("origins", {})))
    refuse_other_components(path, about, plan)
    plan = replace(plan, config=locate_paths(config, about, path))
    loggers = build_loggers(about["loggers"])
    with RunFolder(path, again=True) as folder:
        dataset, source = load_same_images(plan.config, about, path)
        opened = OpenRunFolder(folder, plan.at(source), dataset, source, started, about, loggers)
        if is_set_up(about):
            warn_of_other_device(about, kind_of_device(resolve_device(config.device), ranks), reporter)
        return execute_run(prepare_run(opened, reporter, ranks), reporter)


def reopen_finished(run: Run, config: RunConfig) -> FinishedRun:
    """What a finished run came to, from its folder alone: neither its images nor its components need to be there."""
    name = run.about.get("dataset_name") or data_name(config.dataset, config.data)
    return FinishedRun(config, name, run.table(), dict(run.summary), run.path)


def warn_of_other_device(about: Mapping[str, Any], device: str, reporter: RunReporter) -> None:
    """Say where a run goes on elsewhere than it began."""
    if device != about["device"]:
        reporter.warn(f"begun on {about['device']}, going on on {device}: last digits may differ")


def refuse_other_request(path: Path, plan: RunPlan) -> None:
    """Refuse to continue a run of another configuration.

    Args:
        path: folder of the run that is there.
        plan: what is asked for now; where it names no source, the data set's own is meant.

    Raises:
        UsageError: they differ; says in what.
    """
    about = read_configuration(path)
    plan = with_canonical_source(plan)
    if plan.config.source is None and is_set_up(about):
        plan = plan.at(load(plan.config)[1])
    stored = {**about, "config": restore_config(about["config"]).model_dump(mode="json")}
    if different := differing_settings(stored, plan.described()):
        shown = ", ".join(f"{key} is {there} there, {here} here" for key, (there, here) in list(different.items())[:3])
        raise UsageError(f"{path}: holds a run of another configuration: {shown}; name another folder")


def with_canonical_source(plan: RunPlan) -> RunPlan:
    """A plan whose source domain, if it is named, is written as in `canonical_domain`, however it was asked for."""
    return plan if plan.config.source is None else plan.at(canonical_domain(plan.config.source))


def refuse_other_components(path: Path, about: Mapping[str, Any], plan: RunPlan) -> None:
    """Refuse to go on with methods that have become others.

    Raises:
        UsageError: a component has other fields now than when the run began.
    """
    if different := differing_settings(about, {**plan.described(), "config": about["config"]}):
        key, (there, here) = next(iter(different.items()))
        raise UsageError(
            f"{path}: was begun with other components than are installed now: {key} was {there}, is {here}; run it anew"
        )
