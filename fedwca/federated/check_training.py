"""Checks that the parts of a method can be trained together as its training says."""

from __future__ import annotations

import torch

from fedwca.core.adaptation import Adaptation
from fedwca.core.interfaces import Aggregator, Objective
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.errors import UsageError
from fedwca.federated.extra_networks import changes_network, make_networks
from fedwca.federated.method import Method


def check_training_fits(method: Method, training: Training) -> None:
    """Refuse a method whose parts cannot be trained as the settings say; made before a run and in `run_round`.

    Args:
        method: composed.
        training: how the method's clients train in a round.

    Raises:
        UsageError: names the part or the setting.
    """
    _check_models_are_given(method)
    with torch.random.fork_rng(devices=[]):  # extra networks are made to see what they are called
        _check_adaptation_is_used(method)
        _check_whole_model_is_trained(method, training)
        _check_networks_are_trained(method, training)
        _check_gradients_can_be_inferred(method, training)


def _check_networks_are_trained(method: Method, training: Training) -> None:
    """Refuse extra networks that would not be trained, two with the same name, and any beside a generated model.

    Also what a last phase cannot give its objectives: such networks, and values that other clients upload.
    """
    names = [name for part in method.trained for name in make_networks(part, 2, 2)]
    if repeated_names := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two of its parts have a network called {repeated_names[0]!r}; leave one of the parts out")
    changing = [part for part in method.trained if changes_network(part)]
    if training.trains != "all" and changing:
        raise UsageError(
            f"{changing[0].name!r} trains networks beside the model, which trains = {training.trains} leaves as they "
            "are; leave it out"
        )
    if len([part for part in changing if isinstance(part, Adaptation) and part.generates_models]) and len(changing) > 1:
        raise UsageError(f"a model that is generated has no other networks beside it, as {changing[1].name!r} asks")
    if pooled := [objective for objective in method.finish if objective.collects]:
        raise UsageError(
            f"objective {pooled[0].name!r} learns from what other clients upload, of which a last phase sends nothing; "
            "take it as an objective of the rounds"
        )
    if finish_parts := [objective for objective in method.finish if changes_network(objective)]:
        raise UsageError(
            f"objective {finish_parts[0].name!r} trains networks beside the model, which a last phase does not; take "
            "it as an objective of the rounds"
        )


def _check_whole_model_is_trained(method: Method, training: Training) -> None:
    """Refuse training only a part of the model through an adaptation step, which changes the whole model."""
    if training.trains != "all" and any(objective.adapts for objective in method.objectives):
        raise UsageError(f"a step of an adaptation moves the whole model; leave out trains = {training.trains}")


def _check_gradients_can_be_inferred(method: Method, training: Training) -> None:
    """Refuse settings under which a client's update is not its scaled mean gradient, if the aggregator infers that."""
    aggregator = method.aggregator
    if not aggregator.infers_gradients:
        return
    prefix = f"aggregator {aggregator.name!r} takes how far clients moved for their gradients"
    if training.momentum:
        raise UsageError(f"{prefix}, which momentum {training.momentum:g} changes; take --set training.momentum=0")
    if training.extra_momentum and any(changes_network(part) for part in method.trained):
        raise UsageError(f"{prefix}, which extra_momentum changes; take --set training.extra_momentum=0")
    if training.clip is not None:
        raise UsageError(f"{prefix}, which clip = {training.clip:g} cuts; leave training.clip out")
    rates = [rate for part in method.trained for rate in part.learning_rates().values()]
    if other_rates := [rate for rate in rates if rate != training.lr]:
        raise UsageError(
            f"{prefix}, at one learning rate, and a network beside the model has {other_rates[0]:g} where the model "
            f"has {training.lr:g}; take the same"
        )
    anchors = {name for objective in method.objectives for name in objective.anchors}
    if unread := [name for name in aggregator.references if name not in (*Aggregator.references, *anchors)]:
        raise UsageError(
            f"aggregator {aggregator.name!r} sends {' and '.join(unread)}, which no objective reads; add objective "
            "control"
        )


def _check_models_are_given(method: Method) -> None:
    """Refuse a pseudo-labeler or an objective that reads a model that the aggregator does not provide."""
    aggregator = method.aggregator
    parts_and_models = [
        (method.pseudo_labeler, method.pseudo_labeler.models),
        *((part, (*part.anchors, *part.teachers)) for part in (*method.objectives, *method.finish)),
    ]
    for part, models in parts_and_models:
        if missing := [model for model in models if model not in aggregator.references]:
            raise UsageError(
                f"{part.name!r} reads the model {missing[0]!r}, which aggregator {aggregator.name!r} does not give; it "
                f"gives {', '.join(aggregator.references)}"
            )


def _check_adaptation_is_used(method: Method) -> None:
    """Refuse an objective that needs a missing adaptation, an adaptation beside a last phase, or untrained networks."""
    adaptation = method.adaptation
    adapting = [objective for objective in (*method.objectives, *method.finish) if objective.adapts]
    if adapting and adaptation is None:
        raise UsageError(
            f"objective {adapting[0].name!r} trains through a step of an adaptation; say which, such as adaptation "
            "learned"
        )
    if method.finish and adaptation is not None:
        raise UsageError(
            "clients without labels have a last phase or an adaptation, not both; take finish none or adaptation none"
        )
    if adaptation is not None and make_networks(adaptation, 2, 2) and not adapting:
        raise UsageError(
            f"adaptation {adaptation.name!r} has a network of its own, which no objective of this method trains; add "
            "objective adapted, or take adaptation entropy"
        )


def check_networks_are_there(method: Method, network: Network) -> None:
    """Refuse a model without the extra networks of a method's parts, which would train as if these were not there.

    Raises:
        UsageError: names the part, and how to give the model its networks.
    """
    with torch.random.fork_rng(devices=[]):
        names = {part.name: [*make_networks(part, 2, 2)] for part in method.trained}
    draws = [part.name for part in method.trained if isinstance(part, Objective) and part.feature_draws]
    lacking = [part for part, networks in names.items() if not set(networks) <= set(network.extras)]
    if lacking := [*lacking, *(draws if network.draws is None else ())]:
        raise UsageError(
            f"{lacking[0]!r} trains networks beside the model, which this model does not have; build the engine with "
            "fedwca.federated.extra_networks.grow_network(network, method.trained, seed)"
        )
