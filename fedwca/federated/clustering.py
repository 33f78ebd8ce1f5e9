"""Who is grouped with whom: by a clusterer, by the clients themselves, or by the aggregator's fixed partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedwca.core.interfaces import Aggregator, Clusterer
from fedwca.core.messages import State
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys, uniform
from fedwca.engine.signatures import BankSignatures
from fedwca.errors import FedwcaError
from fedwca.federated.validation import Upload


def assign_clusters(
    round: int,
    aggregator: Aggregator,
    clusterer: Clusterer | None,
    state: State,
    source: Tensor,
    engine: Engine,
    uploads: Mapping[int, Upload],
    keys: Keys,
    domains: Tensor,
) -> tuple[Tensor, Mapping[str, Any]]:
    """Cluster of each client ``[K]``: by the clusterer once after round 0, or as the aggregator's partition says.

    With the clusterer's labels come its notes.

    Args:
        round: r, counted from 0.
        aggregator: says what kind of partition it takes.
        clusterer: makes it, where the aggregator wants one given.
        state: what the server remembers of earlier rounds.
        source: ``[P]``, the model everybody started from.
        engine: its bank holds the trained models.
        uploads: by client, of those that took part.
        keys: where random numbers come from.
        domains: true domains ``[K]``, handed on to oracles alone.

    Raises:
        FedwcaError: see `check_labels`.
    """
    clients = len(engine.images)
    match aggregator.partition:
        case "one":
            return torch.zeros(clients, dtype=torch.int64), {}
        case "each":
            return torch.arange(clients), {}
        case "self" if not round:
            return aggregator.first(clients, uniform(keys(0, -1, "partition"), torch.arange(clients))), {}
        case "self":
            labels = state["labels"].clone()
            for client, upload in uploads.items():
                if upload.label is not None:
                    labels[client] = upload.label[0]
            return labels, {}
        case _ if round:
            return state["labels"], {}
        case _:
            assert clusterer is not None
            truth = domains if clusterer.oracle else None
            found = BankSignatures(
                engine.bank, engine.layout, source, truth, engine.images, lambda k: keys(0, k, "style")
            )
            labels = check_labels(clusterer(found).cpu(), clients, clusterer.name)
            return labels, clusterer.notes(found)


def check_labels(labels: Tensor, clients: int, name: str) -> Tensor:
    """A clusterer's labels, if they are one for each client, numbered from 0 without gaps.

    Raises:
        FedwcaError: they are not.
    """
    right = labels.shape == (clients,) and labels.dtype == torch.int64
    if not right or labels.unique().tolist() != list(range(int(labels.max()) + 1)):
        raise FedwcaError(
            f"clusterer {name!r} gave {labels.tolist()}; right would be {clients} int64 labels, 0 to C-1 without gaps"
        )
    return labels
