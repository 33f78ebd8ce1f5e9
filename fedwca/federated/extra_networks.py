"""The networks that a method trains beside the one that predicts, and what of a model stays with clients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fedwca.core.adaptation import Adaptation
from fedwca.core.drawn_features import SPREAD
from fedwca.core.interfaces import Objective
from fedwca.core.network import Network, add_extras, draw_features
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import fold_key, normal

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
            found |= part.networks(classes, features)
            if isinstance(part, Adaptation) and part.by_client:
                found |= part.generators(shapes, (network.channels, network.side))
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
