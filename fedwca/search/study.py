"""A hyper-parameter search with Optuna, kept in a journal file beside its runs."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedwca.config.resolve_config import RunPlan, type_components
from fedwca.config.run_config import validate
from fedwca.data.cache import make_folder
from fedwca.errors import Diverged, FedwcaError, UsageError
from fedwca.results.lock import hold_lock
from fedwca.results.settings_without_effect import SAME_NUMBERS
from fedwca.results.tables import Table
from fedwca.runs.compare import chosen_domains
from fedwca.runs.load_data import load
from fedwca.runs.reporter import RunReporter, WarningsOnly
from fedwca.runs.reuse_runs import collect_runs
from fedwca.runs.run_request import RunRequest
from fedwca.runs.split_trials import split_trial
from fedwca.search.criteria import CRITERIA, ORACLE, VALIDATION, judge, refuse_unmeasured, worst
from fedwca.search.space import Options, Range, resolve_grid

JOURNAL = "study.journal"
"""File of the study, in the folder of a search."""


@dataclass(frozen=True)
class Search:
    """What is searched and where it is kept."""

    request: RunRequest
    params: Sequence[Options | Range]
    criterion: str
    tries: int | None
    out: Path

    @property
    def direction(self) -> str:
        """Which way is better, in Optuna's words."""
        return CRITERIA.get(self.criterion, "maximize")


@dataclass(frozen=True)
class PlannedSearch:
    """What `search` will try, checked."""

    request: RunRequest
    decided: RunPlan
    """Of the request, nothing tried yet."""
    params: list[Options | Range]
    grid: list[dict[str, Any]] | None
    """Every combination of values; None: values are drawn."""
    tries: int
    """In all, those that are there already included."""

    def runs(self) -> list[RunPlan]:
        """The run of each try; where values are drawn, at the first or lowest ones."""
        first = {p.key: p.values[0] if isinstance(p, Options) else p.low for p in self.params}
        if self.grid is None:
            return [_tried(self.request, first)] * self.tries
        return [_tried(self.request, values) for values in self.grid[: self.tries]]


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
    try:
        import optuna
    except ImportError:
        raise UsageError("fedwca sweep needs Optuna; install it with: pip install 'fedwca[sweep]'") from None
    planned = plan_search(wanted)
    params, grid, tries = planned.params, planned.grid, planned.tries
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # Optuna calls some of its parts experimental
        make_folder(wanted.out)
        stack.callback(hold_lock(wanted.out).release)
        study = _study(optuna, wanted, params, planned.decided)

        def objective(trial: Any) -> float:
            values = {param.key: _suggested(trial, param) for param in params}
            value = _measure(_with(planned.request, values), wanted, reporter)
            reporter.note(f"try {trial.number}: {_shown(values)}: {wanted.criterion} {_number(value)}")
            return value

        complete = [trial.params for trial in _complete(optuna, study)]
        stopped = _end_stopped(optuna, study, len(params))
        missing = [values for values in (stopped if grid is None else grid) if values not in complete]
        # An earlier release may have tried a combination twice.
        done = len(complete) if grid is None else len(grid) - len(missing)
        if done:
            reporter.note(f"{wanted.out}: {done} tries are there already")
        missing += [{}] * tries if grid is None else []  # Optuna draws what is not given
        for values in missing[: max(0, tries - done)]:
            study.enqueue_trial(values)
            study.optimize(objective, n_trials=1)
        found = _complete(optuna, study)
    if not found:
        raise FedwcaError(
            f"{wanted.out}: no try can be judged, since {wanted.criterion} was measured in none; give clients the "
            "images that it is measured on, or judge by another, and name another folder"
        )
    best = sorted(found, key=lambda t: -t.value if wanted.direction == "maximize" else t.value)
    return [{"try": t.number, **t.params, wanted.criterion: t.value} for t in best]


def plan_search(wanted: Search) -> PlannedSearch:
    """See that every value fits and that the criterion can be measured, before anything is trained.

    Raises:
        UsageError: a value would not reach the method, or nothing that the criterion reads is there.
    """
    special = wanted.request.plan().named
    named = wanted.request.layer.get(special) if special else None
    (request,) = chosen_domains(wanted.request, [named] if named else [])
    decided = request.plan()
    params = [replace(param, key=resolve_grid(param.key, decided)) for param in wanted.params]
    for param in params:
        for value in param.values if isinstance(param, Options) else (param.low, param.high):
            _tried(request, {param.key: value})  # which refuses what would not reach the method
    listed = {param.key: param.values for param in params if isinstance(param, Options)}
    if not (wanted.out / JOURNAL).exists():  # a search that goes on was looked at when it began
        first = _tried(request, {key: values[0] for key, values in listed.items()})
        ((_, rounds),) = first.methods
        refuse_unmeasured(wanted.criterion, rounds, split_trial(first.config, *load(first.config), 0, 0))
    grid = _shuffled_grid(listed, decided.config.seed) if len(listed) == len(params) else None
    tries = wanted.tries if wanted.tries is not None else 20 if grid is None else len(grid)
    return PlannedSearch(request, decided, params, grid, tries)


def _shuffled_grid(listed: Mapping[str, Sequence[Any]], seed: int) -> list[dict[str, Any]]:
    """Each combination of values, in an order drawn by the seed: the first few are spread over the grid."""
    grid = [dict(zip(listed, values, strict=True)) for values in product(*listed.values())]
    random.Random(seed).shuffle(grid)
    return grid


def _with(request: RunRequest, values: dict[str, Any]) -> RunRequest:
    return replace(request, tried=[(key, str(value)) for key, value in values.items()])


def _tried(request: RunRequest, values: dict[str, Any]) -> RunPlan:
    return _with(request, values).plan()


def _measure(request: RunRequest, wanted: Search, reporter: RunReporter) -> float:
    """The criterion of one try; its run is made, or reused where it is there."""
    try:
        found = collect_runs(request, wanted.out / "runs", WarningsOnly(reporter))
    except Diverged as error:  # the source model: no run comes of it, and the next try may have another one
        reporter.warn(str(error))
        return worst(wanted.criterion)
    (method,) = found.runs
    return judge(found.lines(method), wanted.criterion)


def _study(optuna: Any, wanted: Search, params: Sequence[Options | Range], decided: RunPlan) -> Any:
    """The study in the folder, or a new one; refuses one of another search."""
    about = {
        "config": decided.config.model_dump(mode="json", exclude=set(SAME_NUMBERS)),
        "criterion": wanted.criterion,
        "params": sorted(map(repr, params)),
    }
    backend = optuna.storages.journal.JournalFileBackend(str(wanted.out / JOURNAL))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name="fedwca",
        direction=wanted.direction,
        load_if_exists=True,
    )
    if _typed(study.user_attrs.get("about", about)) != _typed(about):
        raise UsageError(f"--out {wanted.out}: holds a search with other settings; name another folder or remove it")
    study.set_user_attr("about", about)
    # What goes on draws anew, not what was tried before.
    study.sampler = optuna.samplers.TPESampler(seed=decided.config.seed + len(study.trials))
    return study


def _typed(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a study is of, its components' fields in their types: one of an earlier release may hold them as text."""
    return {**about, "config": type_components(validate(dict(about["config"]))).model_dump(mode="json")}


def _complete(optuna: Any, study: Any) -> list[Any]:
    found: list[Any] = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    return found


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
    notes = [f"{labels} Mean over clients and runs.", f"{shown}: {best}"]
    return Table(title, tuple(found[0]), lines, notes)
