"""The Python interface of runs; folders, numbers and errors are those of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedwca.config.config_layers import layer_from_words
from fedwca.core.check_several import check_list
from fedwca.core.environment_variables import check_one_process
from fedwca.core.files import expand_home
from fedwca.errors import UsageError
from fedwca.results.comparison import Comparison
from fedwca.results.find_runs import find_run
from fedwca.runs.compare import run_comparison
from fedwca.runs.failed_part import naming_failed_part
from fedwca.runs.finished_run import FinishedRun
from fedwca.runs.python_words import errors_in_python_words
from fedwca.runs.reporter import SILENT, RunReporter
from fedwca.runs.resuming.resume_run import resume_run
from fedwca.runs.run_request import RunRequest
from fedwca.runs.start_run import start_run


@errors_in_python_words()
@naming_failed_part()
def bench(
    *,
    out: str | Path | None = None,
    resume: bool = False,
    preset: str = "default",
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    keep: str | int = "last",
    loggers: Sequence[Any] = (),
    reporter: RunReporter = SILENT,
    **settings: Any,
) -> FinishedRun:
    """Run a method and its baselines, as ``fedwca bench`` does.

    Args:
        out: the run folder; None: a new one in ``runs/``.
        resume: continue the run in ``out`` if it has this configuration; a finished one is read.
        preset: default values, which everything else overrides; see ``fedwca list presets``.
        config: TOML or JSON file, such as a run's ``config.json``; ``settings`` override its values.
        overrides: fields by dotted key, as ``--set``: ``{"aggregator.ta": 0.05, "training.momentum": 0.8}``.
        keep: checkpoints to keep: ``last``, ``selected``, ``all``, ``none`` or a number.
        loggers: additional destinations of the records, such as ``"tensorboard"``.
        reporter: receives progress and warnings; the default shows no progress and issues Python warnings.
        settings: fields of `fedwca.config.run_config.RunConfig`, and ``epochs``, ``lr`` and ``batch_size`` of clients.
            Components are names (``"wca"``), specs (``"wca:ta=0.05"``) or instances (``WCA(ta=0.05)``).

    Raises:
        FedwcaError: a setting is wrong or the run fails; wrong settings are found before training where possible.
        KeyboardInterrupt: the run was stopped; finished rounds are kept, and `resume` continues it.
    """
    check_one_process("bench", ["fedwca bench"])
    if out is not None and not str(out):
        raise UsageError("out is empty; leave it out for a new folder in runs/")
    folder = None if out is None else _path("out", out)
    if resume and out is None:
        raise UsageError("resume=True needs out, the folder of the run that goes on")
    request = _request(settings, preset, config, overrides, keep, loggers)
    return start_run(replace(request, out=folder, reuse=resume), reporter)


@errors_in_python_words()
@naming_failed_part()
def resume(run: str | Path, reporter: RunReporter = SILENT) -> FinishedRun:
    """Continue a stopped run, with the same results as if it had not been stopped; a finished one is read.

    Args:
        run: run folder, or its name in ``runs/``.
        reporter: receives progress and warnings.

    Raises:
        FedwcaError: there is no such run, or it cannot be continued.
    """
    check_one_process("resume", ["fedwca resume"])
    return resume_run(find_run(run), reporter)


@errors_in_python_words()
@naming_failed_part()
def compare(
    methods: Sequence[str],
    *,
    sources: Sequence[str] = (),
    reference: str | None = None,
    out: str | Path = "runs/compare",
    preset: str = "default",
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    keep: str | int = "last",
    loggers: Sequence[Any] = (),
    reporter: RunReporter = SILENT,
    **settings: Any,
) -> Comparison:
    """Compare methods over source domains, as ``fedwca compare`` does; finished runs in ``out`` are reused.

    Args:
        methods: baselines, or compositions such as ``fedwca:ta=0.05`` and ``True=fedwca/clusterer=true``.
        sources: source domains, or target domains where the partition has a target, such as ``leave_one_out``;
            ``["all"]``: every domain; empty: the data set's default.
        reference: method that differences are relative to; None: the first of fedavg and fedavg_labelled that is
            among the methods.
        out: folder of run folders, one per source or target.
        preset: as for `bench`.
        config: as for `bench`.
        overrides: as for `bench`.
        keep: as for `bench`.
        loggers: as for `bench`.
        reporter: receives progress and warnings.
        settings: as for `bench`.

    Raises:
        FedwcaError: a setting is wrong or the run fails; wrong settings are found before training where possible.
    """
    check_one_process("compare", ["fedwca bench"])
    request = _request(settings, preset, config, overrides, keep, loggers)
    folder = _path("out", out)
    return run_comparison(request, methods, check_list("sources", sources), reference, folder, reporter)


def _request(
    settings: Mapping[str, Any],
    preset: str,
    config: str | Path | None,
    overrides: Mapping[str, Any] | None,
    keep: str | int,
    loggers: Sequence[Any],
) -> RunRequest:
    """The arguments that `bench` and `compare` share, as a request without a run folder.

    Raises:
        UsageError: one of them has a wrong type, or a setting is unknown.
    """
    if not isinstance(preset, str):
        raise UsageError(f"preset needs a name, such as 'paper', not {preset!r}")
    is_table = overrides is None or (isinstance(overrides, Mapping) and all(isinstance(key, str) for key in overrides))
    if not is_table:
        raise UsageError(f"overrides needs a table of dotted keys, such as {{'training.lr': 0.1}}, not {overrides!r}")
    return RunRequest(
        layer_from_words(settings),
        list((overrides or {}).items()),
        preset,
        None if config is None else _path("config", config),
        keep=str(keep),
        loggers=check_list("loggers", loggers),
    )


def _path(name: str, value: str | Path) -> Path:
    """An argument that names a file or folder.

    Raises:
        UsageError: it is no path.
    """
    if not isinstance(value, str | Path):
        raise UsageError(f"{name} needs a path, not {value!r}")
    return expand_home(value)
