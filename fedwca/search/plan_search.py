"""Plans what a hyper-parameter search will try, and checks it before anything is trained."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fedwca.config.resolve_config import RunPlan
from fedwca.errors import DataError, UsageError
from fedwca.results.settings_without_effect import SAME_NUMBERS
from fedwca.runs.compare import chosen_domains
from fedwca.runs.load_data import load
from fedwca.runs.resuming.start_files import digest_start_files
from fedwca.runs.run_images import describe_images
from fedwca.runs.run_request import RunRequest
from fedwca.runs.split_trials import split_trial
from fedwca.search.criteria import CRITERIA, check_criterion_is_measured, check_criterion_sees_values
from fedwca.search.open_study import JOURNAL
from fedwca.search.space import Options, Range, resolve_grid

MOST_COMBINATIONS = 100_000
"""The largest grid of values; each combination is a run."""
DRAWN = 20
"""Number of tries where a field has a range, unless another is given."""


@dataclass(frozen=True)
class Search:
    """What is searched, and the folder where tries are stored."""

    request: RunRequest
    params: Sequence[Options | Range]
    criterion: str
    tries: int | None
    out: Path

    @property
    def direction(self) -> str:
        """Which way is better: ``maximize`` or ``minimize``, as Optuna calls it."""
        return CRITERIA.get(self.criterion, "maximize")


@dataclass(frozen=True)
class PlannedSearch:
    """A search that was checked and can be run."""

    request: RunRequest
    params: list[Options | Range]
    grid: list[dict[str, Any]] | None
    """Every combination of values, in the order to try them; None: values are drawn."""
    tries: int
    """Number of tries in all, including those that exist already."""
    seed: int
    about: dict[str, Any]
    """What identifies the search; stored with its study."""

    def missing(
        self, complete: Sequence[dict[str, Any]], stopped: Sequence[dict[str, Any]] = ()
    ) -> list[dict[str, Any]]:
        """Values of each try that remains; an empty dict for a try whose values are drawn.

        Args:
            complete: values that were tried.
            stopped: values of tries that were started and have no result.
        """
        missing = [values for values in (stopped if self.grid is None else self.grid) if values not in complete]
        # An earlier release may have tried a combination twice.
        finished = len(complete) if self.grid is None else len(self.grid) - len(missing)
        missing += [{}] * self.tries if self.grid is None else []
        return missing[: max(0, self.tries - finished)]

    def plan(self, values: dict[str, Any]) -> RunPlan:
        """The run of a try; one whose values are to be drawn is planned at the first or lowest values."""
        return with_values(self.request, values or first_values(self.params)).plan()


def plan_search(spec: Search) -> PlannedSearch:
    """Check that every value fits and that the criterion can be measured.

    Raises:
        UsageError: a value would not reach the method, a field is given twice, there are too many combinations, or
            the criterion cannot be measured.
    """
    domain_field = spec.request.plan().domain_role
    domain_name = spec.request.layer.get(domain_field) if domain_field else None
    (request,) = chosen_domains(spec.request, [domain_name] if domain_name else [])
    plan = request.plan()
    params = [replace(param, key=resolve_grid(param.key, plan)) for param in spec.params]
    keys = [param.key for param in params]
    if duplicates := [key for number, key in enumerate(keys) if key in keys[:number]]:
        raise UsageError(f"{duplicates[0]} is given twice; name all its values in one --param")
    grid = _shuffled_grid(params, plan.config.seed)
    base_values = first_values(params)
    _check_values(request, params, base_values)
    first_plan = with_values(request, base_values).plan()
    ((method, rounds),) = first_plan.methods
    check_criterion_sees_values(spec.criterion, keys, method)
    dataset, domain = load(first_plan.config)
    if not (spec.out / JOURNAL).exists():  # a search that is continued was checked when it began
        check_criterion_is_measured(spec.criterion, rounds, split_trial(first_plan.config, dataset, domain, 0, 0))
    drawn = any(isinstance(param, Range) for param in params)
    tries = (DRAWN if drawn or grid is None else len(grid)) if spec.tries is None else spec.tries
    tries = tries if grid is None else min(tries, len(grid))
    about = {
        "config": plan.config.model_dump(mode="json", exclude=set(SAME_NUMBERS)),
        "criterion": spec.criterion,
        "params": sorted(map(repr, params)),
        "images": describe_images(dataset),
        **digest_start_files(plan.config),
    }
    return PlannedSearch(request, params, grid, tries, plan.config.seed, about)


def _check_values(request: RunRequest, params: Sequence[Options | Range], base_values: Mapping[str, Any]) -> None:
    """Check that each value reaches the method, with the other fields at their first values."""
    for param in params:
        for value in param.values if isinstance(param, Options) else (param.low, param.high):
            with_values(request, {**base_values, param.key: value}).plan()


def check_clients(request: RunRequest) -> None:
    """Check that the run of a try can be planned, and that the images suffice for a partition with its values.

    Raises:
        UsageError: the values do not go together, or the images do not suffice.
        DataError: the images cannot be read.
    """
    config = request.plan().config
    if any(key.startswith("partition.") for key, _ in request.tried):
        images = load(config)
        try:
            split_trial(config, *images, 0, 0)
        except DataError as error:
            raise UsageError(str(error)) from error


def first_values(params: Sequence[Options | Range]) -> dict[str, Any]:
    """The first listed value of each field, or the lowest of its range."""
    return {param.key: param.values[0] if isinstance(param, Options) else param.low for param in params}


def with_values(request: RunRequest, values: dict[str, Any]) -> RunRequest:
    """The run request of a try."""
    return replace(request, tried=[(key, str(value)) for key, value in values.items()])


def _shuffled_grid(params: Sequence[Options | Range], seed: int) -> list[dict[str, Any]] | None:
    """All combinations of values in a random order by the seed, so that the first few are spread over the grid.

    A range of whole numbers has few values, which would be drawn again and again. None: a range has others, or there
    are too many combinations.

    Raises:
        UsageError: there are too many combinations of listed values.
    """
    options: dict[str, Sequence[Any]] = {}
    for param in params:
        if isinstance(param, Options):
            options[param.key] = param.values
        elif param.whole and not param.log and param.high - param.low < MOST_COMBINATIONS:
            options[param.key] = range(int(param.low), int(param.high) + 1)
        else:
            return None
    count = math.prod(map(len, options.values()))
    if count > MOST_COMBINATIONS:
        if any(isinstance(param, Range) for param in params):
            return None
        raise UsageError(
            f"the values have {count:,} combinations, and {MOST_COMBINATIONS:,} can be listed; give one field as a "
            "range, such as 0.001..0.1, to have values drawn"
        )
    grid = [dict(zip(options, values, strict=True)) for values in product(*options.values())]
    random.Random(seed).shuffle(grid)
    return grid
