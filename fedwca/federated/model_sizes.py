"""Models of several sizes in one bank: which size a client has, and the rows that all begin with.

A small network is the leading corner of the widest one, with zeros elsewhere. Units whose incoming and outgoing weights
are 0 have zero gradients behind a ReLU, also in second derivatives; weight decay and momentum keep them at 0 as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedwca.core.architecture import Architecture
from fedwca.core.network import Network
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys, fold_key, uniform
from fedwca.federated.extra_networks import Part, grow_network
from fedwca.functional import pad_to_shape


def draw_sizes(keys: Keys, clients: Sequence[int], sizes: int) -> Tensor:
    """Draw the model size of each of n clients ``[n]`` int64, uniformly from 0, the smallest.

    Args:
        keys: of the trial.
        clients: their numbers; newcomers' numbers follow those of the clients that train.
        sizes: number of sizes.
    """
    draws = [uniform(keys(0, client, "size"), torch.zeros(1, dtype=torch.int64)) for client in clients]
    return (torch.cat(draws) * sizes).long() if draws else torch.zeros(0, dtype=torch.int64)


def untrained_rows(model: Architecture, parts: Sequence[Part], widest: Network, seed: int) -> Tensor:
    """Untrained models ``[S, P]``, one of each size, in the layout of the widest.

    Args:
        model: the architecture.
        parts: the method's parts that add networks to the model; these networks have sizes too.
        widest: the network that the rows are of, with the method's extra networks.
        seed: of the initial weights, as of `fedwca.federated.source_model.initial_model`.
    """
    layout, variants = Layout.of(widest), model.size_variants
    if len(variants) == 1:
        return layout.read(widest)[None]
    rows = []
    for place, variant in enumerate(variants):
        network = variant.build(
            widest.classifier.out_features, seed=fold_key([seed, "weights"]) >> 1, trains_classifier=True
        )
        grown = grow_network(network, parts, seed, place=place, sizes=len(variants))
        reference = widest.class_vectors
        own_layout = Layout.of(grown)
        rows.append(pad_row(own_layout.read(grown).to(reference.device, reference.dtype), own_layout, layout))
    return torch.stack(rows)


def pad_row(row: Tensor, own_layout: Layout, wide: Layout) -> Tensor:
    """A model's row ``[P]`` as one of a wider network of the same layers.

    Args:
        row: in the layout of the model.
        own_layout: the layout of the model.
        wide: the layout of the wider network.

    Raises:
        UsageError: a layer is wider than in the wider network.
    """
    slots = {slot.name: slot for slot in own_layout.slots}
    return torch.cat([pad_to_shape(slots[slot.name].of(row), slot.shape).reshape(-1) for slot in wide.slots])
