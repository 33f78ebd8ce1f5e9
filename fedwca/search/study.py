"""A hyper-parameter search with Optuna, kept in a journal file beside its runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedwca.config.resolve_config import RunPlan, type_components
from fedwca.config.run_config import validate
from fedwca.data.cache import make_folder
from fedwca.errors import UsageError
from fedwca.results.lock import hold_lock
from fedwca.results.settings_without_effect import SAME_NUMBERS
from fedwca.results.tables import Table
from fedwca.runs.compare import chosen_domains
from fedwca.runs.reporter import RunReporter, WarningsOnly
from fedwca.runs.reuse_runs import collect_runs
from fedwca.runs.run_request import RunRequest
from fedwca.search.criteria import CRITERIA, ORACLE, VALIDATION, judge
from fedwca.search.space import Options, Range, check_taken, resolve_grid


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


def search(wanted: Search, reporter: RunReporter) -> list[dict[str, Any]]:
    """Try values until there are enough; returns the finished tries, the best first.

    Args:
        wanted: what is tried.
        reporter: told of every try, and of warnings in it.

    Raises:
        UsageError: Optuna is not installed, or the folder holds another search.
    """
    try:
        import optuna
    except ImportError:
        raise UsageError("fedwca sweep needs Optuna; install it with: pip install 'fedwca[sweep]'") from None
    special = wanted.request.plan().named
    named = wanted.request.layer.get(special) if special else None
    (request,) = chosen_domains(wanted.request, [named] if named else [])
    decided = request.plan()
    params = [replace(param, key=resolve_grid(param.key, decided)) for param in wanted.params]
    for param in params:
        for value in param.values if isinstance(param, Options) else (param.low, param.high):
            check_taken(param.key, value, _tried(request, {param.key: value}))
    listed = {param.key: list(param.values) for param in params if isinstance(param, Options)}
    whole = len(listed) == len(params)
    most = math.prod(map(len, listed.values())) if whole else None
    tries = wanted.tries if wanted.tries is not None else most or 20
    tries = tries if most is None else min(tries, most)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # Optuna calls some of its parts experimental
        make_folder(wanted.out)
        stack.callback(hold_lock(wanted.out).release)
        study = _study(optuna, wanted, params, decided, listed if whole else None)

        def objective(trial: Any) -> float:
            values = {param.key: _suggested(trial, param) for param in params}
            found = collect_runs(_with(request, values), wanted.out / "runs", WarningsOnly(reporter))
            (method,) = found.runs
            value = judge(found.lines(method), wanted.criterion)
            reporter.note(f"try {trial.number}: {_shown(values)}: {wanted.criterion} {_number(value)}")
            return value

        _again(optuna, study)
        done = len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))
        if done:
            reporter.note(f"{wanted.out}: {done} tries are there already")
        if tries > done:
            study.optimize(objective, n_trials=tries - done)
    complete = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    best = sorted(complete, key=lambda t: -t.value if wanted.direction == "maximize" else t.value)
    return [{"try": t.number, **t.params, wanted.criterion: t.value} for t in best]


def _with(request: RunRequest, values: dict[str, Any]) -> RunRequest:
    return replace(request, tried=[(key, str(value)) for key, value in values.items()])


def _tried(request: RunRequest, values: dict[str, Any]) -> RunPlan:
    return _with(request, values).plan()


def _study(optuna: Any, wanted: Search, params: Sequence[Options | Range], decided: RunPlan, listed: Any) -> Any:
    """The study in the folder, or a new one; refuses one of another search."""
    about = {
        "config": decided.config.model_dump(mode="json", exclude=set(SAME_NUMBERS)),
        "criterion": wanted.criterion,
        "params": sorted(map(repr, params)),
    }
    backend = optuna.storages.journal.JournalFileBackend(str(wanted.out / "study.journal"))
    sampler = optuna.samplers.GridSampler(listed, seed=decided.config.seed) if listed else None
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name="fedwca",
        direction=wanted.direction,
        load_if_exists=True,
        sampler=sampler,
    )
    if _typed(study.user_attrs.get("about", about)) != _typed(about):
        raise UsageError(f"--out {wanted.out}: holds a search with other settings; name another folder or remove it")
    study.set_user_attr("about", about)
    if not listed:  # what goes on draws anew, not what was tried before
        study.sampler = optuna.samplers.TPESampler(seed=decided.config.seed + len(study.trials))
    return study


def _typed(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a study is of, its components' fields in their types: one of an earlier release may hold them as text."""
    return {**about, "config": type_components(validate(dict(about["config"]))).model_dump(mode="json")}


def _again(optuna: Any, study: Any) -> None:
    """Tries that an earlier process was stopped in are given up and done over."""
    for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params)


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
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "diverged"
    return str(value)


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
