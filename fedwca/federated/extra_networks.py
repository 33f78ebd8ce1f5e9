"""The networks that a method trains beside the one that predicts."""

from __future__ import annotations

from fedwca.core.adaptation import Adaptation
from fedwca.core.network import Network, add_extras
from fedwca.engine.randomness import fold_key


def grow_network(network: Network, adaptation: Adaptation | None, seed: int) -> Network:
    """A network with a method's extra ones beside it; itself where the method has none.

    Args:
        network: the one that predicts; its weights stay, so that all methods begin with the same.
        adaptation: the method's.
        seed: of the extra networks' weights; each is drawn by its name.
    """
    if adaptation is None:
        return network
    classes, features = network.classifier.out_features, network.features
    draws = lambda name: fold_key([seed, "weights", name]) >> 1  # noqa: E731
    return add_extras(network, lambda: adaptation.networks(classes, features), draws)
