"""Checks of a method's parts against one another: what does not fit is refused when it is composed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch

from fedwca.core.adaptation import Adaptation
from fedwca.core.interfaces import Aggregator, Objective, PseudoLabeler
from fedwca.core.network import Architecture
from fedwca.core.objective import ImageView
from fedwca.core.training_settings import Training
from fedwca.errors import UsageError
from fedwca.federated.extra_networks import changes_network
from fedwca.federated.method import Method
from fedwca.partitions import Partition


def check_clusterer_is_used(aggregator: Aggregator, clusterer: str | None) -> None:
    """Refuse a clusterer where the aggregator asks none.

    Raises:
        UsageError: one is named.
    """
    if clusterer and not aggregator.grouping.needs_clusterer:
        raise UsageError(
            f"clusterer {clusterer!r} is not used: aggregator {aggregator.name!r} {aggregator.grouping.instead}; "
            "leave --clusterer out, or take one_hot or wca"
        )


def check_models_are_given(aggregator: Aggregator, labeler: PseudoLabeler, objectives: Sequence[Objective]) -> None:
    """Refuse a pseudo-labeler or an objective that reads a model which the aggregator does not give.

    Raises:
        UsageError: names the part and the model.
    """
    asked = [(labeler, labeler.models), *((o, (*o.anchors, *o.teachers)) for o in objectives)]
    for part, models in asked:
        if lacking := [model for model in models if model not in aggregator.references]:
            raise UsageError(
                f"{part.name!r} reads the model {lacking[0]!r}, which aggregator {aggregator.name!r} does not give; it "
                f"gives {', '.join(aggregator.references)}"
            )


def check_views_are_known(objectives: Sequence[Objective]) -> None:
    """Refuse an objective that reads a view of the images that there is not.

    Raises:
        UsageError: names both.
    """
    known = get_args(ImageView)
    for objective in objectives:
        if unknown := [view for view in objective.views if view not in known]:
            raise UsageError(f"{objective.name!r} reads the view {unknown[0]!r}; there are {', '.join(known)}")


def check_adaptation_is_used(
    name: str, adaptation: Adaptation | None, objectives: Sequence[Objective], finish: Sequence[Objective]
) -> None:
    """Refuse an objective that trains through a step where there is none, and networks that nothing would train.

    Args:
        name: of the method.
        adaptation: of the method.
        objectives: of its rounds.
        finish: of its last phase.

    Raises:
        UsageError: says what is missing.
    """
    through = [objective for objective in (*objectives, *finish) if objective.adapts]
    if through and adaptation is None:
        raise UsageError(
            f"method {name!r}: objective {through[0].name!r} trains through a step of an adaptation; say "
            "which, such as --adaptation learned"
        )
    if finish and adaptation is not None:
        raise UsageError(
            f"method {name!r}: clients without labels have a last phase or an adaptation, not both; take "
            "--finish none or --adaptation none"
        )
    if adaptation is not None and adaptation.networks(2, 2) and not through:
        raise UsageError(
            f"method {name!r}: adaptation {adaptation.name!r} has a network of its own, which no objective of this "
            "method trains; add --objective adapted, or take --adaptation entropy"
        )


def check_models_can_be_generated(method: Method, engine: str, partition: type[Partition]) -> None:
    """Refuse what does not go with an adaptation that generates each client's model.

    Args:
        method: composed.
        engine: that is asked for.
        partition: of the run.

    Raises:
        UsageError: says what would be right.
    """
    adaptation = method.adaptation
    if adaptation is None or not adaptation.by_client:
        return
    what = f"method {method.name!r}: adaptation {adaptation.name!r} generates a model for each client (by_client), "
    if engine == "stacked":
        raise UsageError(f"{what}one by one; take --engine loop, or auto")
    if not partition.whole:
        raise UsageError(f"{what}which clients with labels train; it needs a partition of such, as of --preset upfl")
    if method.aggregator.from_start or method.aggregator.keeps:
        raise UsageError(
            f"{what}and aggregator {method.aggregator.name!r} needs the model that was sent, of which there is none"
        )
    for part in method.objectives:
        if part.on == "public" or part.adapts or part.anchors or part.teachers or part.observes or part.collects:
            raise UsageError(f"{what}and objective {part.name!r} needs the model that was sent, of which there is none")


def check_networks_are_trained(method: Method, training: Training) -> None:
    """Refuse extra networks that would not be trained, or of which two would have one name.

    Args:
        method: composed.
        training: how clients train in a round, unless the method says it.

    Raises:
        UsageError: names the part.
    """
    what, names = f"method {method.name!r}: ", [name for part in method.trained for name in part.networks(2, 2)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{what}two of its parts have a network called {twice[0]!r}; leave one of the parts out")
    beside = [part for part in method.trained if changes_network(part)]
    trains = method.training_in(training).trains
    if trains != "all" and beside:
        raise UsageError(
            f"{what}{beside[0].name!r} trains networks beside the model, which trains = {trains} leaves as they are; "
            "leave it out"
        )
    if len([part for part in beside if isinstance(part, Adaptation) and part.by_client]) and len(beside) > 1:
        raise UsageError(f"{what}a model that is generated has no other networks beside it, as {beside[1].name!r} asks")
    if later := [objective for objective in method.finish if changes_network(objective)]:
        raise UsageError(
            f"{what}objective {later[0].name!r} trains networks beside the model, which a last phase does not; take it "
            "by --objective"
        )


def check_epochs_are_whole(method: Method, training: Training, rounds: int) -> None:
    """Refuse rounds that end inside an epoch, where an epoch is cut into rounds.

    Args:
        method: composed.
        training: how clients train in a round, unless the method says it.
        rounds: of the method, without a last phase.

    Raises:
        UsageError: says which numbers of rounds are right.
    """
    cuts = method.training_in(training).cuts
    if rest := rounds % cuts:
        more = rounds - rest + cuts
        right = f"{rounds - rest} or {more}" if rounds > cuts else f"{more}"
        raise UsageError(
            f"method {method.name!r}: {rounds} rounds end inside an epoch, which training.cuts makes {cuts} rounds "
            f"long; take --rounds {right}"
        )


def check_steps_have_labels(method: Method, training: Training, partition: type[Partition]) -> None:
    """Refuse a round of steps where labels are made before each epoch.

    Args:
        method: composed.
        training: how clients train in a round, unless the method says it.
        partition: of the run; where it trains whole networks, clients that train have labels.

    Raises:
        UsageError: says what would be right.
    """
    steps = method.training_in(training).steps
    if steps is not None and not partition.whole and method.pseudo_labeler.renew == "epoch":
        raise UsageError(
            f"method {method.name!r}: pseudo-labeler {method.pseudo_labeler.name!r} labels images before each epoch, "
            f"and a round of {steps} steps has none; take renew=round, or epochs in place of steps"
        )


def check_whole_model_is_trained(method: Method, training: Training) -> None:
    """Refuse training of a part of the model where it goes through a step that moves all of it.

    Args:
        method: composed.
        training: how clients train in a round, unless the method says it.

    Raises:
        UsageError: names the part.
    """
    trains = method.training_in(training).trains
    if trains != "all" and any(objective.adapts for objective in method.objectives):
        raise UsageError(
            f"method {method.name!r}: a step of an adaptation moves the whole model; leave out trains = {trains}"
        )


def check_gradients_can_be_inferred(method: Method, training: Training) -> None:
    """Refuse what makes how far a client moved something else than its mean gradient, where that is taken for it.

    Args:
        method: composed.
        training: how clients train in a round, unless the method says it.

    Raises:
        UsageError: names it.
    """
    aggregator, training = method.aggregator, method.training_in(training)
    if not aggregator.infers_gradients:
        return
    what = f"method {method.name!r}: aggregator {aggregator.name!r} takes how far clients moved for their gradients"
    if training.momentum:
        raise UsageError(f"{what}, which momentum {training.momentum:g} changes; take --set training.momentum=0")
    if training.extra_momentum and any(changes_network(part) for part in method.trained):
        raise UsageError(f"{what}, which extra_momentum changes; take --set training.extra_momentum=0")
    if training.clip is not None:
        raise UsageError(f"{what}, which clip = {training.clip:g} cuts; leave training.clip out")
    rates = [rate for part in method.trained for rate in part.rates().values()]
    if other := [rate for rate in rates if rate != training.lr]:
        raise UsageError(
            f"{what}, at one learning rate, and a network beside the model has {other[0]:g} where the model has "
            f"{training.lr:g}; take the same"
        )
    read = {name for objective in method.objectives for name in objective.anchors}
    if unread := [name for name in aggregator.references if name not in (*Aggregator.references, *read)]:
        raise UsageError(
            f"method {method.name!r}: aggregator {aggregator.name!r} sends {' and '.join(unread)}, which no objective "
            "reads; add --objective control"
        )


def check_layers_can_stay(method: Method, partition: type[Partition], model: Architecture) -> None:
    """Refuse last layers that stay with clients where some client does not train them, and means of several clients'
    for a new one where such a mean does not say the mean of their outputs.

    Args:
        method: composed.
        partition: of the run.
        model: of the run.

    Raises:
        UsageError: says what would be right.
    """
    if method.aggregator.keeps and (partition.some_unlabeled or not partition.whole):
        raise UsageError(
            f"method {method.name!r}: aggregator {method.aggregator.name!r} leaves the last layer with the client that "
            "trains it, which clients without labels do not; they all need labels, as with --partition shards"
        )
    averages = method.aggregator.keeps and len(method.aggregator.deliver_new(2, torch.zeros(1)).nonzero()) > 1
    if averages and (method.aggregator.keeps > 1 or model.classifier == "wn"):
        what = f"{method.aggregator.keeps} layers" if method.aggregator.keeps > 1 else "a weight-normalised classifier"
        raise UsageError(
            f"method {method.name!r}: new clients get the mean of all clients' last layers for the mean of their "
            f"outputs, which it is of one linear layer, not of {what}; take layers=1 and "
            "--set model.classifier=linear, or new=sampled, as pfl-sampled does"
        )
