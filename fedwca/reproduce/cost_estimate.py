"""The cost of a reproduction, estimated before it is run: rounds, images, hours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedwca.config.compose_methods import partition_of
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import RunConfig
from fedwca.core.training_settings import Training
from fedwca.data.labelled_clients import VALIDATION
from fedwca.datasets import datasets
from fedwca.federated.method import Method
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
TRAINING = 0.64
"""Share of the images of a client in a domain that it trains on."""


def estimate_plan(plan: RunPlan, domain: str, names: Sequence[str] | None = None) -> Cost:
    """The cost of a run; source models come on top, once.

    Args:
        plan: methods, rounds and trials.
        domain: source or target; empty where no domain is unlike the others.
        names: only these methods; None: all.
    """
    config, methods = plan.config, [(m, r) for m, r in plan.methods if names is None or m.name in names]
    runs, catalogued = config.source_models * config.trials, {}
    if config.dataset in datasets.names():
        catalogued = datasets.get(config.dataset).counts
    images, work = (0.0, 0.0) if catalogued else (float("nan"), float("nan"))
    for method, rounds in methods if catalogued else ():
        trained = runs * count_trained_images(config, method, rounds, domain, catalogued)
        images += trained
        work += trained * (ADAPTED if any(part.adapts for part in method.objectives) else 1)
    known = read_toml("reproduce")["speed"].get(config.model)
    pixels = (architecture(config).side / known["side"]) ** 2 if known else float("nan")
    hours = work * pixels / known["images"] / 3600 if known else float("nan")
    return Cost(runs * len(methods), runs * sum(rounds for _, rounds in methods), images, hours)


def count_trained_images(
    config: RunConfig, method: Method, rounds: int, domain: str, catalogued: Mapping[str, int]
) -> float:
    """Images that one run of a method trains on, each time counted, and those that its own start is trained on.

    Args:
        config: the run's.
        method: which one.
        rounds: of it, of which the last is the last phase where it has one.
        domain: source or target; empty where no domain is unlike the others.
        catalogued: images by domain.
    """
    others = {name: count for name, count in catalogued.items() if name != domain}
    plain = rounds - bool(method.finish)
    # Who takes part is drawn after the first round.
    played = min(1, plain) + max(0, plain - 1) * config.participation
    images = played * count_round_images(config, others, method.training_in(config.training))
    if method.finish_training is not None:
        without_labels = {domain: catalogued[domain]} if domain in catalogued else others
        images += count_round_images(config, without_labels, method.finish_training)
    if method.start is not None:
        epochs = config.central_training.as_long_as(config.training, config.rounds).epochs or 0
        seen = {domain: catalogued[domain]} if method.start.oracle else others
        sizes = [min(count, config.clients * (config.samples or count)) for count in seen.values()]
        # Beside heaps a step has as many images of each source and of the target, an epoch those of the largest source.
        each = sum(sizes) if method.start.pooled else max(sizes) * (len(sizes) + 1)
        images += epochs * TRAINING * each
    return images


def count_round_images(config: RunConfig, counts: Mapping[str, int], training: Training) -> float:
    """Images that all clients train on in a round, each time counted.

    Args:
        config: says how many clients there are, and how many images each has at most.
        counts: images by domain, of those that have clients.
        training: how they train.
    """
    partition, most = partition_of(config), config.samples or float("inf")
    clients, dealt, share = config.clients * len(counts), config.clients, TRAINING
    if partition.newcomers:  # images of all domains are dealt together, to clients that come later too
        clients, counts = config.clients, {"": sum(counts.values())}
        dealt += config.new_clients or config.clients
        share = 1 - (VALIDATION if config.validation is None else config.validation)
    if training.steps is not None:
        return float(clients * training.steps * training.batch_size)
    each = sum(config.clients * share * min(most, count / dealt) for count in counts.values())
    return each * training.epochs / training.cuts


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
