"""Checks that a method's parts fit each other, made when the method is composed.

Where a check takes the whole method, the caller puts the method's name before the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch

from fedwca.core.architecture import Architecture
from fedwca.core.interfaces import Aggregator, Objective
from fedwca.core.objective import ImageView
from fedwca.core.training_settings import Training
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.partitions import Partition


def check_clusterer_is_used(aggregator: Aggregator, clusterer: str | None) -> None:
    """Refuse a clusterer that the aggregator does not use.

    Raises:
        UsageError: a clusterer is named, and the aggregator needs none.
    """
    if clusterer and not aggregator.grouping.needs_clusterer:
        raise UsageError(
            f"clusterer {clusterer!r} is not used: aggregator {aggregator.name!r} {aggregator.grouping.description}; "
            "leave the clusterer out, or take one_hot or wca"
        )


def check_views_are_known(objectives: Sequence[Objective]) -> None:
    """Refuse an objective that reads an unknown view of the images.

    Raises:
        UsageError: names the objective and the view.
    """
    known_views = get_args(ImageView)
    for objective in objectives:
        if unknown_views := [view for view in objective.views if view not in known_views]:
            raise UsageError(
                f"{objective.name!r} reads the view {unknown_views[0]!r}; there are {', '.join(known_views)}"
            )


def check_models_can_be_generated(method: Method, engine: str, partition: type[Partition]) -> None:
    """Refuse what cannot be combined with an adaptation that generates each client's model.

    Args:
        method: composed.
        engine: the requested engine.
        partition: of the run.

    Raises:
        UsageError: says what to change.
    """
    adaptation = method.adaptation
    if adaptation is None or not adaptation.generates_models:
        return
    prefix = f"adaptation {adaptation.name!r} generates a model for each client, "
    if engine == "stacked":
        raise UsageError(f"{prefix}one by one; take --engine loop, or auto")
    if not partition.trains_classifier:
        raise UsageError(f"{prefix}which clients with labels train; it needs a partition of such, as of --preset upfl")
    if method.aggregator.offers_in_round_0 or method.aggregator.local_layers:
        raise UsageError(
            f"{prefix}and aggregator {method.aggregator.name!r} needs the model that was sent, of which there is none"
        )
    for part in method.objectives:
        if part.trained_on == "public" or any((part.adapts, part.anchors, part.teachers, part.observes, part.collects)):
            raise UsageError(
                f"{prefix}and objective {part.name!r} needs the model that was sent, of which there is none"
            )


def check_layers_can_stay(method: Method, partition: type[Partition], model: Architecture) -> None:
    """Refuse last layers that stay with clients if some clients do not train them, and averages of them for new clients
    if the average layers do not output the mean of the clients' outputs.

    Args:
        method: composed.
        partition: of the run.
        model: of the run.

    Raises:
        UsageError: says what to change.
    """
    local_layers = method.aggregator.local_layers
    if local_layers and (partition.some_unlabeled or not partition.trains_classifier):
        raise UsageError(
            f"aggregator {method.aggregator.name!r} leaves the last layer with the client that trains it, which "
            "clients without labels do not; they all need labels, as with --partition shards"
        )
    averages_layers = local_layers and len(method.aggregator.deliver_new(2, torch.zeros(1)).nonzero()) > 1
    draws = [objective.name for objective in method.objectives if objective.feature_draws]
    if averages_layers and draws:
        raise UsageError(
            "new clients get the mean of all clients' last layers for the mean of their outputs, which it is not where "
            f"objective {draws[0]!r} draws features; take new=sampled, as pfl-sampled does"
        )
    if averages_layers and (local_layers > 1 or model.classifier == "wn"):
        kind = f"{local_layers} layers" if local_layers > 1 else "a weight-normalised classifier"
        raise UsageError(
            "new clients get the mean of all clients' last layers for the mean of their outputs, which it is of one "
            f"linear layer, not of {kind}; take layers=1 and --set model.classifier=linear, or new=sampled, as "
            "pfl-sampled does"
        )


def check_epochs_are_whole(training: Training, rounds: int) -> None:
    """Refuse a number of rounds that ends inside an epoch, if an epoch is several rounds long.

    Args:
        training: how the method's clients train in a round.
        rounds: of the method, without its last phase.

    Raises:
        UsageError: says which numbers of rounds are valid.
    """
    length = training.rounds_per_epoch
    if remainder := rounds % length:
        rounded_up = rounds - remainder + length
        valid_rounds = f"{rounds - remainder} or {rounded_up}" if rounds > length else f"{rounded_up}"
        raise UsageError(
            f"{rounds} rounds end inside an epoch, which training.rounds_per_epoch makes {length} rounds long; "
            f"take --rounds {valid_rounds}"
        )
