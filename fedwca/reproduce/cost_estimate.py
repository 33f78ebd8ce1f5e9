"""Estimates of the cost of runs before they start: rounds, images, hours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedwca.config.build_component import architecture, component, partition_of
from fedwca.config.idle_settings import idle_tables
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import RunConfig
from fedwca.core.count_of import count_of
from fedwca.core.training_settings import Training
from fedwca.data.labelled_clients import VALIDATION
from fedwca.datasets import datasets
from fedwca.federated.method import Method
from fedwca.reproduce.definitions import read_toml


@dataclass(frozen=True)
class Cost:
    """The rough cost of a set of runs."""

    runs: int
    """Methods × source models × trials."""
    rounds: int
    """Rounds of all these runs together."""
    images: float
    """Images trained on, counted each time; NaN where the data set is not in the catalogue."""
    hours: float
    """Hours on two CPU cores; NaN where the model's speed was not measured."""
    trains_source_models: bool = False
    """Whether source models are trained for these runs, which the cost does not include."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.runs + other.runs,
            self.rounds + other.rounds,
            self.images + other.images,
            self.hours + other.hours,
            self.trains_source_models or other.trains_source_models,
        )


ADAPTED = 3
"""Rough cost of a training step through an adaptation step, relative to a plain one (`benchmarks/adapted_step.py`)."""
TRAINING = 0.64
"""Share of a client's images that it trains on, in partitions without newcomers."""


def estimate_plan(plan: RunPlan, domain: str, names: Sequence[str] | None = None) -> Cost:
    """The cost of a run, without that of training its source models, which are trained once.

    Args:
        plan: methods, rounds and trials.
        domain: the source or target; empty where no domain is set apart.
        names: names of the methods to count; None: all.
    """
    config, methods = plan.config, [(m, r) for m, r in plan.methods if names is None or m.name in names]
    runs, catalogued = config.source_models * config.trials, {}
    if config.dataset in datasets.names():
        catalogued = datasets.get(config.dataset).image_counts
    images, work = (0.0, 0.0) if catalogued else (float("nan"), float("nan"))
    for method, rounds in methods if catalogued else ():
        trained = runs * count_trained_images(config, method, rounds, domain, catalogued)
        images += trained
        work += trained * (ADAPTED if any(part.adapts for part in method.objectives) else 1)
    speed = read_toml("reproduce")["speed"].get(config.model)
    pixels = (architecture(config).side / speed["side"]) ** 2 if speed else float("nan")
    hours = work * pixels / speed["images"] / 3600 if speed else float("nan")
    trains_source_models = config.checkpoint is None and "source_training" not in idle_tables(partition_of(config))
    rounds_of_all = runs * sum(rounds for _, rounds in methods)
    return Cost(runs * len(methods), rounds_of_all, images, hours, trains_source_models)


def count_trained_images(
    config: RunConfig, method: Method, rounds: int, domain: str, catalogued: Mapping[str, int]
) -> float:
    """Images that one run of a method trains on, counted each time, including central training of its initial model.

    Args:
        config: the run's.
        method: the method.
        rounds: of the method; if it has a last phase, the last round is that.
        domain: the source or target; empty where no domain is set apart.
        catalogued: number of images by domain.
    """
    other_domains = {name: count for name, count in catalogued.items() if name != domain}
    training_rounds = rounds - bool(method.finish)
    # All clients take part in the first round, later a share of them.
    full_rounds = min(1, training_rounds) + max(0, training_rounds - 1) * config.participation
    images = full_rounds * count_round_images(config, other_domains, method.training_in(config.training))
    if method.finish_training is not None:
        without_labels = {domain: catalogued[domain]} if domain in catalogued else other_domains
        images += count_round_images(config, without_labels, method.finish_training)
    if method.public_objective is not None:  # its clients and new ones of each size learn from these, but not at first
        partition = component("partition", config.partition, config.components)
        model_sizes = len(architecture(config).size_variants)
        learners = config.clients * config.participation
        passes = learners * method.public_objective.passes + model_sizes * method.public_objective.new_passes
        images += (training_rounds - 1) * passes * partition.public * sum(catalogued.values())
    if method.central is not None:
        epochs = config.central_training.as_long_as(config.training, config.rounds).epochs or 0
        trained_on = {domain: catalogued[domain]} if method.central.oracle else other_domains
        sizes = [min(count, config.clients * (config.samples or count)) for count in trained_on.values()]
        # Unless domains are pooled, a step has as many images of each source as of the target, and the largest source
        # determines the steps of an epoch.
        images_per_epoch = sum(sizes) if method.central.pooled else max(sizes) * (len(sizes) + 1)
        images += epochs * TRAINING * images_per_epoch
    return images


def count_round_images(config: RunConfig, counts: Mapping[str, int], training: Training) -> float:
    """Images that all clients train on in a round, counted each time.

    Args:
        config: sets the number of clients, and how many images each has at most.
        counts: number of images by domain, for domains that have clients.
        training: how they train.
    """
    partition, max_images = partition_of(config), config.samples or float("inf")
    receivers, share = config.clients, TRAINING
    if partition.has_newcomers:  # images of all domains are pooled and divided among clients, newcomers included
        counts = {"": sum(counts.values())}
        receivers += config.new_clients or config.clients
        share = 1 - (VALIDATION if config.validation is None else config.validation)
    client_images = [share * min(max_images, count / receivers) for count in counts.values()]
    if training.steps is not None:  # steps go through all images again and again; the last batch of a pass is short
        step_images = [images / math.ceil(images / training.batch_size) for images in client_images]
        return config.clients * training.steps * sum(step_images)
    return config.clients * sum(client_images) * training.epochs / training.rounds_per_epoch


def describe_cost(cost: Cost, runs_note: str = "") -> str:
    """The cost in words: runs, rounds, and images and hours as far as they are known."""
    return f"{count_of(cost.runs, 'run')}{runs_note}, {count_of(cost.rounds, 'round')}, {_rough(cost)}"


def _rough(cost: Cost) -> str:
    if math.isnan(cost.images):
        return "cost unknown (the data set is not in the catalogue)"
    excluded = " without source models" if cost.trains_source_models else ""
    hours = "" if math.isnan(cost.hours) else f", roughly {_hours(cost.hours)} on 2 CPU cores{excluded}"
    millions = cost.images / 1e6
    images = f"{millions:.1f} million" if millions >= 0.1 else f"{cost.images:,.0f}"
    return f"{images} images trained on{hours}"


def _hours(hours: float) -> str:
    if hours < 1 / 60:
        return "a minute"
    if hours < 1:
        return count_of(round(60 * hours), "minute")
    return count_of(round(hours), "hour") if hours < 48 else f"{hours / 24:.0f} days"
