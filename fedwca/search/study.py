"""Runs a hyper-parameter search with Optuna, stored in a journal file beside its runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from fedwca.data.cache import make_folder
from fedwca.errors import Diverged, FedwcaError, UsageError
from fedwca.results.describe_run import is_central
from fedwca.results.find_runs import run_folders
from fedwca.results.lock import hold_lock
from fedwca.results.read_run import read_if_run
from fedwca.results.tables import Table
from fedwca.runs.reporter import OneOfMany, RunReporter
from fedwca.runs.resuming.reuse_runs import collect_runs, warn_of_other_environments, warn_of_other_source_models
from fedwca.runs.run_request import RunRequest
from fedwca.search.criteria import ORACLE, VALIDATION, judge, worst
from fedwca.search.open_study import complete_trials, open_study, tried_values
from fedwca.search.plan_search import PlannedSearch, Search, check_clients, plan_search, with_values
from fedwca.search.space import Options, Range

OF_SOURCE_MODELS = ("source_training.", "model.", "dataset.", "partition.")
"""How keys begin whose values change the source model."""


def search(spec: Search, reporter: RunReporter) -> list[dict[str, Any]]:
    """Run the tries of a search that are missing; returns all finished tries, the best first.

    Args:
        spec: what is searched.
        reporter: gets a note for every try, and its warnings.

    Raises:
        UsageError: Optuna is not installed, the criterion cannot be measured, or the folder holds another search.
        FedwcaError: no try has a value of the criterion.
    """
    optuna = import_optuna()
    planned = plan_search(spec)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        make_folder(spec.out)
        stack.callback(hold_lock(spec.out).release)
        study = open_study(optuna, spec.out, planned.about, spec.direction)
        # A continued search draws new values, not those that were tried before.
        study.sampler = optuna.samplers.TPESampler(seed=planned.seed + len(study.trials))

        tried = tried_values(optuna, study)
        missing = planned.missing(tried, _end_stopped(optuna, study, len(planned.params)))
        if tried:
            there = "1 try is" if len(tried) == 1 else f"{len(tried)} tries are"
            reporter.note(f"{spec.out}: {there} there already")
        done = planned.tries - len(missing)

        def objective(trial: Any) -> float:
            nonlocal done
            values = {param.key: _suggested(trial, param) for param in planned.params}
            request = with_values(planned.request, values)
            try:
                check_clients(request)
            except UsageError as error:  # values were checked one by one, and without the images
                done += 1
                reporter.warn(f"try {trial.number} is left out, since {_shown(values)} cannot be run: {error}")
                raise optuna.TrialPruned from None
            value = _measure(request, spec, reporter)
            done += 1
            progress = f"{done} of {planned.tries}"
            reporter.note(f"try {trial.number} ({progress}): {_shown(values)}: {spec.criterion} {_number(value)}")
            return value

        try:
            for values in missing:
                study.enqueue_trial(values)
                study.optimize(objective, n_trials=1)
        except KeyboardInterrupt as interrupt:
            interrupt.args = (
                f"Stopped; {done} of {planned.tries} tries are kept in {spec.out}; the same command goes on",
            )
            raise
        trials = complete_trials(optuna, study)
    _warn_of_differences(spec, planned, reporter)
    if not trials and all(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials):
        raise FedwcaError(f"{spec.out}: no try could be run, as the warnings say; name other values and another folder")
    if not trials:
        raise FedwcaError(
            f"{spec.out}: no try can be judged, since {spec.criterion} was measured in none; give clients the "
            "images that it is measured on, or judge by another, and name another folder"
        )
    best = sorted(trials, key=lambda trial: -trial.value if spec.direction == "maximize" else trial.value)
    return [{"try": trial.number, **trial.params, spec.criterion: trial.value} for trial in best]


def import_optuna() -> Any:
    """Import Optuna.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UsageError("fedwca sweep needs Optuna; install it with: pip install 'fedwca[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _warn_of_differences(spec: Search, planned: PlannedSearch, reporter: RunReporter) -> None:
    """Warn if tries, made at other times perhaps, differ in more than the values that are searched."""
    runs = list(filter(None, map(read_if_run, run_folders(spec.out / "runs"))))
    # A central method's start is trained by the values that are tried.
    central = any(is_central(about) for run in runs for about in run.methods.values())
    if not central and not any(param.key.startswith(OF_SOURCE_MODELS) for param in planned.params):
        warn_of_other_source_models(runs, reporter)
    warn_of_other_environments(runs, reporter)


def _measure(request: RunRequest, spec: Search, reporter: RunReporter) -> float:
    """The criterion of one try; its run is executed, or reused if it exists."""
    try:
        collected = collect_runs(request, spec.out / "runs", OneOfMany(reporter))
    except Diverged as error:  # of the source model: there is no run, but the next try may have another source model
        reporter.warn(str(error))
        return worst(spec.criterion)
    ((method, run),) = collected.runs.items()
    return judge(run.lines_of(method), spec.criterion)


def _end_stopped(optuna: Any, study: Any, fields: int) -> list[dict[str, Any]]:
    """Mark every unfinished try as failed; returns the values of all failed tries, without repetition.

    A diverged try is not among them, since it has a value.

    Args:
        optuna: the module.
        study: one that no other process uses.
        fields: number of fields that a try has values of; a try with fewer had not begun to train.
    """
    states = optuna.trial.TrialState
    for _ in study.get_trials(deepcopy=False, states=[states.WAITING]):
        study.ask()
    for trial in study.get_trials(deepcopy=False, states=[states.RUNNING]):
        study.tell(trial.number, state=states.FAIL)
    failed_values: list[dict[str, Any]] = []
    for trial in study.get_trials(deepcopy=False, states=[states.FAIL]):
        if len(trial.params) == fields and trial.params not in failed_values:
            failed_values.append(trial.params)
    return failed_values


def _suggested(trial: Any, param: Options | Range) -> Any:
    if isinstance(param, Options):
        return trial.suggest_categorical(param.key, param.values)
    if param.whole:
        return trial.suggest_int(param.key, int(param.low), int(param.high), log=param.log)
    return trial.suggest_float(param.key, param.low, param.high, log=param.log)


def _shown(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} = {value:.4g}" if isinstance(value, float) else f"{key} = {value}" for key, value in values.items()
    )


def _number(value: Any) -> str:
    """A value as text of a table; an infinite criterion is that of a diverged try."""
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "not measured"
    return f"{value:.4g}" if math.isfinite(value) else "diverged"


def all_diverged(tries: Sequence[Mapping[str, Any]], criterion: str) -> bool:
    """Whether every try diverged, given the tries with the best first."""
    return math.isinf(tries[0][criterion])


def tabulate_tries(spec: Search, tries: list[dict[str, Any]]) -> Table:
    """The table of tries, the best first, with the options that run the best."""
    # A search that goes on may have its parameters in another order than tries before.
    lines = [[_number(entry[column]) for column in tries[0]] for entry in tries]
    better = "more" if spec.direction == "maximize" else "less"
    best = " ".join(f"--set {key}={value}" for key, value in tries[0].items() if key not in ("try", spec.criterion))
    by_validation = spec.criterion == VALIDATION
    unread_labels = "No label of a new client was" if by_validation else "No label of a target image was"
    labels = f"{unread_labels} read to judge."
    if spec.criterion == ORACLE:
        labels = "ORACLE: judged by test accuracy, which needs the labels that nobody has here."
    method = spec.request.layer["baselines"][0]
    when = "in the best round" if by_validation else "after the last round"
    title = f"{method}: {spec.criterion} {when} ({better} is better), the best first"
    equally_good = sum(entry[spec.criterion] == tries[0][spec.criterion] for entry in tries)
    best_note = "The best" if equally_good == 1 else f"{equally_good} tries are equally good; the first"
    notes = [f"{labels} Mean over clients and runs."]
    if not all_diverged(tries, spec.criterion):
        notes.append(f"{best_note}: {best}")
    return Table(title, tuple(tries[0]), lines, notes)
