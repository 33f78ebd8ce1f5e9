"""A hyper-parameter search with Optuna, kept in a journal file beside its runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from fedwca.data.cache import make_folder
from fedwca.errors import Diverged, FedwcaError, UsageError
from fedwca.results.lock import hold_lock
from fedwca.results.tables import Table
from fedwca.runs.reporter import OneOfMany, RunReporter
from fedwca.runs.reuse_runs import collect_runs
from fedwca.runs.run_request import RunRequest
from fedwca.search.criteria import ORACLE, VALIDATION, judge, worst
from fedwca.search.open_study import complete_trials, open_study, tried_values
from fedwca.search.plan_search import Search, plan_search, with_values
from fedwca.search.space import Options, Range


def search(wanted: Search, reporter: RunReporter) -> list[dict[str, Any]]:
    """Try values until there are enough; returns the finished tries, the best first.

    Args:
        wanted: what is tried.
        reporter: told of every try, and of warnings in it.

    Raises:
        UsageError: Optuna is not installed, nothing that the criterion reads is there, or the folder holds another
            search.
        FedwcaError: the criterion was measured in no try.
    """
    optuna = import_optuna()
    planned = plan_search(wanted)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))  # Optuna calls some of its parts experimental
        make_folder(wanted.out)
        stack.callback(hold_lock(wanted.out).release)
        study = open_study(optuna, wanted.out, planned.about, wanted.direction)
        # What goes on draws anew, not what was tried before.
        study.sampler = optuna.samplers.TPESampler(seed=planned.seed + len(study.trials))

        tried = tried_values(optuna, study)
        missing = planned.missing(tried, _end_stopped(optuna, study, len(planned.params)))
        if tried:
            reporter.note(f"{wanted.out}: {len(tried)} tries are there already")
        done = planned.tries - len(missing)

        def objective(trial: Any) -> float:
            nonlocal done
            values = {param.key: _suggested(trial, param) for param in planned.params}
            try:
                with_values(planned.request, values).plan()
            except UsageError as error:  # each value fits beside the first ones of the others, which says not all
                done += 1
                reporter.warn(f"try {trial.number}: {_shown(values)} do not go together and are left out: {error}")
                raise optuna.TrialPruned from None
            value = _measure(with_values(planned.request, values), wanted, reporter)
            done += 1
            counted = f"{done} of {planned.tries}"
            reporter.note(f"try {trial.number} ({counted}): {_shown(values)}: {wanted.criterion} {_number(value)}")
            return value

        try:
            for values in missing:
                study.enqueue_trial(values)
                study.optimize(objective, n_trials=1)
        except KeyboardInterrupt as stopped:
            stopped.args = (
                f"Stopped; {done} of {planned.tries} tries are kept in {wanted.out}; the same command goes on",
            )
            raise
        found = complete_trials(optuna, study)
    if not found:
        raise FedwcaError(
            f"{wanted.out}: no try can be judged, since {wanted.criterion} was measured in none; give clients the "
            "images that it is measured on, or judge by another, and name another folder"
        )
    best = sorted(found, key=lambda t: -t.value if wanted.direction == "maximize" else t.value)
    return [{"try": t.number, **t.params, wanted.criterion: t.value} for t in best]


def import_optuna() -> Any:
    """The module.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UsageError("fedwca sweep needs Optuna; install it with: pip install 'fedwca[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _measure(request: RunRequest, wanted: Search, reporter: RunReporter) -> float:
    """The criterion of one try; its run is made, or reused where it is there."""
    try:
        found = collect_runs(request, wanted.out / "runs", OneOfMany(reporter))
    except Diverged as error:  # the source model: no run comes of it, and the next try may have another one
        reporter.warn(str(error))
        return worst(wanted.criterion)
    (method,) = found.runs
    return judge(found.lines(method), wanted.criterion)


def _end_stopped(optuna: Any, study: Any, fields: int) -> list[dict[str, Any]]:
    """Mark every try without a value as failed; returns what was tried in them, each once.

    A try that diverged is not among them: it has a value.

    Args:
        optuna: the module.
        study: no other process is at work on it.
        fields: how many each try gets a value of; where some are lacking nothing had been trained.
    """
    states = optuna.trial.TrialState
    for _ in study.get_trials(deepcopy=False, states=[states.WAITING]):
        study.ask()
    for trial in study.get_trials(deepcopy=False, states=[states.RUNNING]):
        study.tell(trial.number, state=states.FAIL)
    found: list[dict[str, Any]] = []
    for trial in study.get_trials(deepcopy=False, states=[states.FAIL]):
        if len(trial.params) == fields and trial.params not in found:
            found.append(trial.params)
    return found


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
    """A value of a table; a criterion without end is that of a try that diverged."""
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "not measured"
    return f"{value:.4g}" if math.isfinite(value) else "diverged"


def all_diverged(found: Sequence[Mapping[str, Any]], criterion: str) -> bool:
    """Whether no try came to its end, of tries the best first."""
    return math.isinf(found[0][criterion])


def tabulate_tries(wanted: Search, found: list[dict[str, Any]]) -> Table:
    """The tries, the best first, and how to run the best."""
    lines = [[_number(value) for value in entry.values()] for entry in found]
    better = "more" if wanted.direction == "maximize" else "less"
    best = " ".join(f"--set {key}={value}" for key, value in found[0].items() if key not in ("try", wanted.criterion))
    by_validation = wanted.criterion == VALIDATION
    judged = "No label of a new client was" if by_validation else "No label of a target image was"
    labels = f"{judged} read to judge."
    if wanted.criterion == ORACLE:
        labels = "ORACLE: judged by test accuracy, which needs the labels that nobody has here."
    method = wanted.request.layer["baselines"][0]
    when = "in the best round" if by_validation else "after the last round"
    title = f"{method}: {wanted.criterion} {when} ({better} is better), the best first"
    alike = sum(entry[wanted.criterion] == found[0][wanted.criterion] for entry in found)
    shown = "The best" if alike == 1 else f"{alike} tries are equally good; the first"
    notes = [f"{labels} Mean over clients and runs."]
    if not all_diverged(found, wanted.criterion):
        notes.append(f"{shown}: {best}")
    return Table(title, tuple(found[0]), lines, notes)
