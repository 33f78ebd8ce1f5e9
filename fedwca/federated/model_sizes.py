"""Models of several sizes in one bank: which one a client has, and the rows that they begin with.

A small network is the leading corner of the widest, zeros elsewhere: units with zero weights in and out have zero
gradients behind a ReLU, second derivatives, decay and momentum included, so they stay so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedwca.core.network import Architecture, Network
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys, fold_key, uniform
from fedwca.federated.extra_networks import Part, grow_network
from fedwca.functional import padded


def draw_sizes(keys: Keys, clients: Sequence[int], sizes: int) -> Tensor:
    """The size ``[n]`` int64 of some clients, from 0, the smallest, each with the same chance.

    Args:
        keys: of the trial.
        clients: their numbers; newcomers come behind those that train.
        sizes: how many there are.
    """
    drawn = [uniform(keys(0, client, "size"), torch.zeros(1, dtype=torch.int64)) for client in clients]
    return (torch.cat(drawn) * sizes).long() if drawn else torch.zeros(0, dtype=torch.int64)


def begin_rows(model: Architecture, parts: Sequence[Part], whole: Network, seed: int) -> Tensor:
    """Models that nobody trained ``[S, P]``, one of each size, in the layout of the widest.

    Args:
        model: the architecture.
        parts: the method's that have networks beside the model; these have sizes too.
        whole: the network that the rows are of, with the method's extra ones.
        seed: of the initial weights, as of `fedwca.federated.source_model.initial_model`.
    """
    layout, variants = Layout.of(whole), model.variants
    if len(variants) == 1:
        return layout.read(whole)[None]
    rows = []
    for place, variant in enumerate(variants):
        made = variant.build(whole.classifier.out_features, seed=fold_key([seed, "weights"]) >> 1, whole=True)
        grown = grow_network(made, parts, seed, place=place, sizes=len(variants))
        like = whole.class_vectors
        own = Layout.of(grown)
        rows.append(pad_row(own.read(grown).to(like.device, like.dtype), own, layout))
    return torch.stack(rows)


def pad_row(row: Tensor, own: Layout, wide: Layout) -> Tensor:
    """A model's row ``[P]`` as one of a wider network of the same layers.

    Args:
        row: in the model's own layout.
        own: that layout.
        wide: the wider network's.

    Raises:
        UsageError: a layer is wider than the other network's.
    """
    slots = {slot.name: slot for slot in own.slots}
    return torch.cat([padded(slots[slot.name].of(row), slot.shape).reshape(-1) for slot in wide.slots])
