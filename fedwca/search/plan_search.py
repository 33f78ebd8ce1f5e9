"""What a hyper-parameter search will try, checked before anything is trained."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedwca.config.resolve_config import RunPlan
from fedwca.errors import UsageError
from fedwca.results.settings_without_effect import SAME_NUMBERS
from fedwca.runs.checkpoint_digest import digest_checkpoint
from fedwca.runs.compare import chosen_domains
from fedwca.runs.load_data import load
from fedwca.runs.run_images import describe_images
from fedwca.runs.run_request import RunRequest
from fedwca.runs.split_trials import split_trial
from fedwca.search.criteria import CRITERIA, check_criterion_is_measured, check_criterion_sees_values
from fedwca.search.open_study import JOURNAL
from fedwca.search.space import Options, Range, resolve_grid

MOST_COMBINATIONS = 100_000
"""Of listed values; each is a run."""


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
    """A search that can be run."""

    request: RunRequest
    params: list[Options | Range]
    grid: list[dict[str, Any]] | None
    """Every combination of values; None: values are drawn."""
    tries: int
    """In all, those that are there already included."""
    seed: int
    about: dict[str, Any]
    """What the study is of, as it is kept with it."""

    def missing(
        self, complete: Sequence[dict[str, Any]], stopped: Sequence[dict[str, Any]] = ()
    ) -> list[dict[str, Any]]:
        """Values of each try that is left; empty where they are drawn.

        Args:
            complete: what was tried.
            stopped: what was begun and has no value.
        """
        missing = [values for values in (stopped if self.grid is None else self.grid) if values not in complete]
        # An earlier release may have tried a combination twice.
        done = len(complete) if self.grid is None else len(self.grid) - len(missing)
        missing += [{}] * self.tries if self.grid is None else []
        return missing[: max(0, self.tries - done)]

    def plan(self, values: dict[str, Any]) -> RunPlan:
        """The run of a try; of values that are drawn, at the first or lowest ones."""
        return with_values(self.request, values or first_values(self.params)).plan()


def plan_search(wanted: Search) -> PlannedSearch:
    """See that every value fits and that the criterion can be measured.

    Raises:
        UsageError: a value would not reach the method, a field is given twice, there are too many combinations, or
            nothing that the criterion reads is there.
    """
    special = wanted.request.plan().named
    named = wanted.request.layer.get(special) if special else None
    (request,) = chosen_domains(wanted.request, [named] if named else [])
    plan = request.plan()
    params = [replace(param, key=resolve_grid(param.key, plan)) for param in wanted.params]
    keys = [param.key for param in params]
    if twice := [key for number, key in enumerate(keys) if key in keys[:number]]:
        raise UsageError(f"{twice[0]} is given twice; name all its values in one --param")
    listed = {param.key: param.values for param in params if isinstance(param, Options)}
    grid = _shuffled_grid(listed, plan.config.seed) if len(listed) == len(params) else None
    others = first_values(params)
    _check_values(request, params, others)
    first = with_values(request, others).plan()
    ((method, rounds),) = first.methods
    check_criterion_sees_values(wanted.criterion, keys, method)
    dataset, domain = load(first.config)
    if not (wanted.out / JOURNAL).exists():  # a search that goes on was looked at when it began
        check_criterion_is_measured(wanted.criterion, rounds, split_trial(first.config, dataset, domain, 0, 0))
    most = 20 if grid is None else len(grid)
    tries = most if wanted.tries is None else wanted.tries if grid is None else min(wanted.tries, most)
    about = {
        "config": plan.config.model_dump(mode="json", exclude=set(SAME_NUMBERS)),
        "criterion": wanted.criterion,
        "params": sorted(map(repr, params)),
        "images": describe_images(dataset),
    }
    if (checkpoint := digest_checkpoint(plan.config)) is not None:
        about["checkpoint_digest"] = checkpoint
    return PlannedSearch(request, params, grid, tries, plan.config.seed, about)


def _check_values(request: RunRequest, params: Sequence[Options | Range], others: Mapping[str, Any]) -> None:
    """Refuse what would not reach the method beside the first values of the others, which some alone go with."""
    for param in params:
        for value in param.values if isinstance(param, Options) else (param.low, param.high):
            with_values(request, {**others, param.key: value}).plan()


def first_values(params: Sequence[Options | Range]) -> dict[str, Any]:
    """The first value of each field, or the lowest one of a range."""
    return {param.key: param.values[0] if isinstance(param, Options) else param.low for param in params}


def with_values(request: RunRequest, values: dict[str, Any]) -> RunRequest:
    """The request of a try."""
    return replace(request, tried=[(key, str(value)) for key, value in values.items()])


def _shuffled_grid(listed: Mapping[str, Sequence[Any]], seed: int) -> list[dict[str, Any]]:
    """Each combination of values, in an order drawn by the seed: the first few are spread over the grid.

    Raises:
        UsageError: there are too many.
    """
    number = math.prod(map(len, listed.values()))
    if number > MOST_COMBINATIONS:
        raise UsageError(
            f"the values have {number:,} combinations, and {MOST_COMBINATIONS:,} can be listed; give one field as a "
            "range, such as 0.001..0.1, to have values drawn"
        )
    grid = [dict(zip(listed, values, strict=True)) for values in product(*listed.values())]
    random.Random(seed).shuffle(grid)
    return grid
