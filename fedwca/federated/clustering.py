"""Who is grouped with whom after a round, as the aggregator's kind of grouping says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedwca.core.grouping import GroupingInput
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
    """Cluster of each client ``[K]``, and in the round in which a clusterer makes them its notes.

    Args:
        round: r, counted from 0.
        aggregator: says how they are grouped.
        clusterer: makes the groups, where the aggregator needs one.
        state: what the server remembers of earlier rounds.
        source: ``[P]``, the model everybody started from.
        engine: its bank holds the trained models.
        uploads: by client, of those that took part.
        keys: where random numbers come from.
        domains: true domains ``[K]``, handed on to oracles alone.

    Raises:
        FedwcaError: see `check_labels`.
    """
    clients, grouping = len(engine.images), aggregator.grouping
    truth = domains if clusterer is not None and clusterer.oracle else None
    signatures = BankSignatures(engine.bank, engine.layout, source, truth, engine.images, lambda k: keys(0, k, "style"))

    def cluster() -> Tensor:
        assert clusterer is not None
        return check_labels(clusterer(signatures).cpu(), clients, clusterer.name)

    def deal() -> Tensor:
        return aggregator.first(clients, uniform(keys(0, -1, "partition"), torch.arange(clients)))

    choices = {client: int(upload.label[0]) for client, upload in uploads.items() if upload.label is not None}
    labels = grouping.assign(GroupingInput(round, clients, state, choices, cluster, deal))
    asked = clusterer if grouping.needs_clusterer and not round else None
    return labels, {} if asked is None else asked.notes(signatures)


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
