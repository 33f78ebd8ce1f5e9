"""Extra networks that a method trains besides the one that predicts, and parts of a model that stay with clients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from fedwca.core.adaptation import Adaptation
from fedwca.core.component_answers import check_mapping
from fedwca.core.drawn_features import SPREAD
from fedwca.core.interfaces import Objective
from fedwca.core.network import Network, initial_weights
from fedwca.engine.parameter_layout import BASE_PARTS, Layout
from fedwca.engine.randomness import fold_key, normal
from fedwca.errors import UsageError

Part = Adaptation | Objective


def changes_network(part: Part) -> bool:
    """Whether a part of a method adds something to the network that predicts."""
    if isinstance(part, Objective):
        return bool(make_networks(part, 2, 2)) or part.feature_draws > 0
    return bool(make_networks(part, 2, 2)) or part.generates_models


def make_networks(part: Part, classes: int, features: int) -> dict[str, nn.Module]:
    """The extra networks of a part by name, freshly initialised, for M classes and q features.

    Raises:
        FedwcaError, UsageError: see `check_modules`.
    """
    return check_modules(part.networks(classes, features), f"{part.name!r}: networks")


def check_modules(networks: object, component: str) -> dict[str, nn.Module]:
    """The networks a part gave, if they are modules by names of their own without a dot, which separates names.

    Args:
        networks: what the part gave.
        component: the part and its method.

    Raises:
        FedwcaError: they are something else.
        UsageError: a name has a dot, or is that of a part of the model.
    """
    modules = dict(check_mapping(networks, nn.Module, "modules", component))
    if dotted_names := [name for name in modules if "." in name]:
        raise UsageError(f"{component} gave a network called {dotted_names[0]!r}; right is a name without a dot")
    if taken_names := [name for name in modules if name in (*BASE_PARTS, SPREAD)]:
        raise UsageError(f"{component} gave a network called {taken_names[0]!r}, as a part of the model; rename it")
    return modules


def grow_network(
    network: Network, parts: Sequence[Part], seed: int, *, place: int | None = None, sizes: int = 1
) -> Network:
    """A copy of a network with a method's extra networks added; the network itself if the method has none.

    Args:
        network: the one that predicts; its weights are kept, so that all methods begin with the same.
        parts: the method's, see `fedwca.federated.method.Method.trained`.
        seed: of the extra networks' weights; each network's draw also depends on its name.
        place: index of its size among the model sizes, from 0; None: the widest.
        sizes: number of model sizes.

    Raises:
        UsageError: see `check_networks`.
    """
    place = sizes - 1 if place is None else place
    parts = [part.at_size(place, sizes) if isinstance(part, Adaptation) else part for part in parts]
    classes, features, backbone_width = network.classifier.out_features, network.features, network.backbone.out_features
    objectives = [part for part in parts if isinstance(part, Objective)]
    generates = any(isinstance(part, Adaptation) and part.generates_models for part in parts)
    shapes = {slot.name: slot.shape for slot in Layout.of(network).parameters}
    draws = max((objective.feature_draws for objective in objectives), default=0)

    def make() -> dict[str, nn.Module]:
        networks: dict[str, nn.Module] = {}
        for part in parts:
            part_networks = make_networks(part, classes, features)
            if isinstance(part, Adaptation) and part.generates_models:
                generators = part.generators(shapes, (network.channels, network.side))
                part_networks |= check_modules(generators, f"{part.name!r}: generators")
            networks |= check_networks(part, part_networks)
        return {**networks, **({SPREAD: nn.Linear(backbone_width, features)} if draws else {})}

    grown = add_extras(network, make, lambda name: fold_key([seed, "weights", name]) >> 1)
    if draws:
        # All models use the same draws, so that a prediction depends on nothing but the model.
        drawn = normal(fold_key(["features"]), torch.arange(draws * features)).view(draws, features)
        grown.draws = drawn.to(grown.classifier.bias)
    if grown is not network:
        grown.is_generated = generates
        staying = [name for objective in objectives for name in objective.local_networks]
        base = Layout.of(network).parts if generates else ()
        grown.local_parts = tuple(dict.fromkeys((*base, *staying)))
    return grown


def check_networks(part: Part, networks: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Check the networks of a part and return them: they hold parameters only, and the part names no others.

    Raises:
        UsageError: a network has a buffer, which would be neither sent nor mixed, or draws random numbers by itself;
            or the part has a rate for a network that is not there, or lets it stay.
    """
    names = [*part.learning_rates(), *(part.local_networks if isinstance(part, Objective) else ())]
    if unknown := [name for name in names if name not in networks]:
        raise UsageError(
            f"{part.name!r} has a rate for the network {unknown[0]!r}, or lets it stay, and has none of that name; "
            f"there are {', '.join(networks) or 'none'}"
        )
    for name, network in networks.items():
        if buffers := [buffer for buffer, _ in network.named_buffers()]:
            raise UsageError(
                f"the network {name!r} of {part.name!r} has the buffer {buffers[0]!r}; parameters alone travel"
            )
        if any(isinstance(module, _DropoutNd) for module in network.modules()):
            raise UsageError(
                f"the network {name!r} of {part.name!r} draws at random by itself; take `batch.noise` for what it draws"
            )
    return networks


def add_extras(network: Network, make: Callable[[], Mapping[str, nn.Module]], seed: Callable[[str], int]) -> Network:
    """A copy of a network with extra networks added, sharing no tensors; the network itself if there are none.

    Args:
        network: one without extra networks; its weights are the same in the copy.
        make: makes the extra networks by name, with random weights.
        seed: maps a network's name to the seed of its weights.
    """
    with initial_weights(0):
        names = list(make())
    if not names:
        return network
    grown, reference = copy.deepcopy(network), network.classifier.bias
    for name in names:
        with initial_weights(seed(name)):
            grown.extras[name] = make()[name].to(reference.device, reference.dtype)
    return grown


def remove_extras(network: Network) -> Network:
    """Remove extra networks, in place, and return the network; it then predicts from mean features, without draws."""
    network.extras, network.draws, network.local_parts, network.is_generated = nn.ModuleDict(), None, (), False
    return network
