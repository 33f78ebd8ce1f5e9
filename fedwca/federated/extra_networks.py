"""The networks that a method trains beside the one that predicts, and what of a model stays with clients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from fedwca.core.adaptation import Adaptation
from fedwca.core.drawn_features import SPREAD
from fedwca.core.interfaces import Objective
from fedwca.core.network import Network, initial_weights
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import fold_key, normal
from fedwca.errors import UsageError

Part = Adaptation | Objective


def changes_network(part: Part) -> bool:
    """Whether a method's part puts something beside the network that predicts."""
    if isinstance(part, Objective):
        return bool(part.networks(2, 2)) or part.feature_draws > 0
    return bool(part.networks(2, 2)) or part.by_client


def grow_network(
    network: Network, parts: Sequence[Part], seed: int, *, place: int | None = None, sizes: int = 1
) -> Network:
    """A network with a method's extra ones beside it; itself where the method has none.

    Args:
        network: the one that predicts; its weights stay, so that all methods begin with the same.
        parts: the method's, see `fedwca.federated.method.Method.trained`.
        seed: of the extra networks' weights; each is drawn by its name.
        place: which of the sizes of models it has, from 0; None: the widest.
        sizes: of how many.

    Raises:
        UsageError: see `check_networks`.
    """
    place = sizes - 1 if place is None else place
    parts = [part.at_size(place, sizes) if isinstance(part, Adaptation) else part for part in parts]
    classes, features, read = network.classifier.out_features, network.features, network.backbone.width
    objectives = [part for part in parts if isinstance(part, Objective)]
    generates = any(isinstance(part, Adaptation) and part.by_client for part in parts)
    shapes = {slot.name: slot.shape for slot in Layout.of(network).parameters}
    draws = max((objective.feature_draws for objective in objectives), default=0)

    def make() -> dict[str, nn.Module]:
        found: dict[str, nn.Module] = {}
        for part in parts:
            own = part.networks(classes, features)
            if isinstance(part, Adaptation) and part.by_client:
                own |= part.generators(shapes, (network.channels, network.side))
            found |= check_networks(part, own)
        return {**found, **({SPREAD: nn.Linear(read, features)} if draws else {})}

    grown = add_extras(network, make, lambda name: fold_key([seed, "weights", name]) >> 1)
    if draws:
        # The same of all models, so that a model's prediction depends on nothing but the model.
        draw_features(grown, normal(fold_key(["features"]), torch.arange(draws * features)).view(draws, features))
    if grown is not network:
        grown.generated = generates
        own = [name for objective in objectives for name in objective.stays]
        base = Layout.of(network).parts if generates else ()
        grown.stays = tuple(dict.fromkeys((*base, *own)))
    return grown


def check_networks(part: Part, networks: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """A part's networks, if they hold parameters alone and the names that it has rates for and that stay are theirs.

    Raises:
        UsageError: a network has a buffer, which would be neither sent nor mixed, or draws at random by itself; or
            there is none of a name.
    """
    said = [*part.rates(), *(part.stays if isinstance(part, Objective) else ())]
    if unknown := [name for name in said if name not in networks]:
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
    """A copy of a network with extra ones beside it, which shares nothing; the network itself where there are none.

    Args:
        network: has none; its weights stay as they are, whatever is put beside them.
        make: makes them by name, with random weights.
        seed: a name to the seed of that one's weights.
    """
    with initial_weights(0):
        names = list(make())
    if not names:
        return network
    grown, like = copy.deepcopy(network), network.classifier.bias
    for name in names:
        with initial_weights(seed(name)):
            grown.extras[name] = make()[name].to(like.device, like.dtype)
    return grown


def draw_features(network: Network, draws: Tensor) -> Network:
    """The network, changed in place: its features are drawn from normal distributions.

    Args:
        network: has an extra network `SPREAD`, from what the backbone gives to a number for each feature, whose
            softplus is the standard deviation.
        draws: standard normal ``[S, q]``, of which a prediction is the mean.
    """
    network.draws = draws.to(network.classifier.bias)
    return network


def remove_extras(network: Network) -> Network:
    """The network alone, changed in place where there are others beside it; it predicts by the means of features that
    were drawn.
    """
    network.extras, network.draws, network.stays, network.generated = nn.ModuleDict(), None, (), False
    return network
