"""The cost of a reproduction, estimated before it is run: rounds, images, hours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import RunConfig
from fedwca.datasets import datasets
from fedwca.reproduce.definitions import read_toml
from fedwca.results.describe_run import count_of
from fedwca.runs.load_data import architecture


@dataclass(frozen=True)
class Cost:
    """What a set of runs takes, roughly."""

    runs: int
    """Methods × source models × trials."""
    rounds: int
    """Of all these together."""
    images: float
    """Images trained on, each time counted; NaN where the data set is not catalogued."""
    hours: float
    """On two CPU cores; NaN where nobody measured the model."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.runs + other.runs,
            self.rounds + other.rounds,
            self.images + other.images,
            self.hours + other.hours,
        )


ADAPTED = 3
"""How much dearer a step through a step is, roughly (`benchmarks/adapted_step.py`)."""


def estimate_cost(config: RunConfig, source: str, methods: Sequence[int], adapted: Sequence[bool] = ()) -> Cost:
    """The cost of some methods for one source; source models come on top, once.

    Args:
        config: the run's.
        source: source domain.
        methods: rounds of each method.
        adapted: whether each trains through a step; none: none does.
    """
    runs = config.source_models * config.trials
    catalogued = datasets.get(config.dataset).counts if config.dataset in datasets.names() else {}
    targets = {name: count for name, count in catalogued.items() if name != source}
    most = float(config.samples or float("inf"))
    each = sum(config.clients * 0.64 * min(most, count / config.clients) for count in targets.values())
    training = config.training
    by_round = each * training.epochs / training.cuts if targets else float("nan")
    if training.steps is not None:
        by_round = float(config.clients * training.steps * training.batch_size)
    images = by_round * runs * sum(methods)
    dearer = sum(number for number, through in zip(methods, adapted, strict=False) if through)
    work = images + (ADAPTED - 1) * by_round * runs * dearer
    known = read_toml("reproduce")["speed"].get(config.model)
    pixels = (architecture(config).side / known["side"]) ** 2 if known else float("nan")
    hours = work * pixels / known["images"] / 3600 if known else float("nan")
    return Cost(runs * len(methods), runs * sum(methods), images, hours)


def estimate_plan(plan: RunPlan, domain: str, names: Sequence[str] | None = None) -> Cost:
    """The cost of a run.

    Args:
        plan: methods, rounds and trials.
        domain: source, or what the data set is dealt by.
        names: only these methods; None: all.
    """
    rounds = {m.name: r for m, r in plan.methods if names is None or m.name in names}
    adapted = [any(part.adapts for part in m.objectives) for m, _ in plan.methods if m.name in rounds]
    return estimate_cost(plan.config, domain, list(rounds.values()), adapted)


def describe_cost(found: Cost, what: str = "") -> str:
    """Runs, rounds, and images and hours as far as they are known."""
    return f"{count_of(found.runs, 'run')}{what}, {count_of(found.rounds, 'round')}, {_rough(found)}"


def _rough(found: Cost) -> str:
    if math.isnan(found.images):
        return "cost unknown (the data set is not in the catalogue)"
    hours = "" if math.isnan(found.hours) else f", roughly {_hours(found.hours)} on 2 CPU cores without source models"
    million = found.images / 1e6
    images = f"{million:.1f} million" if million >= 0.1 else f"{found.images:,.0f}"
    return f"{images} images trained on{hours}"


def _hours(hours: float) -> str:
    if hours < 1 / 60:
        return "a minute"
    if hours < 1:
        return count_of(round(60 * hours), "minute")
    return count_of(round(hours), "hour") if hours < 48 else f"{hours / 24:.0f} days"
