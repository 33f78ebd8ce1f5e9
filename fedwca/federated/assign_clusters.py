"""Who is grouped with whom, and the vectors by which clients are compared; shared by simulation and deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from fedwca.core.component_answers import describe_value
from fedwca.core.grouping import GroupingInput, check_labels, check_notes
from fedwca.core.interfaces import Aggregator, Clusterer
from fedwca.core.messages import Signatures, State
from fedwca.engine.randomness import Keys, uniform
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.method import Method
from fedwca.federated.upload_checks import Upload
from fedwca.functional import Metric


def assign_clusters(
    round: int,
    method: Method,
    state: State,
    uploads: Mapping[int, Upload],
    present: Tensor,
    signatures: Callable[[], Signatures],
    keys: Keys,
) -> tuple[Tensor, Mapping[str, Any]]:
    """Cluster of each client ``[K]`` by the aggregator's grouping, and the notes of the clusterer if it was called.

    Args:
        round: r, counted from 0.
        method: its aggregator decides how clients are grouped, its clusterer groups them where one is needed.
        state: what the server remembers of earlier rounds.
        uploads: by client, of those that took part.
        present: clients whose models count ``[K]`` bool; others are in cluster 0 in round 0.
        signatures: returns those of the present clients, in order; called only if the clusterer groups.
        keys: where random numbers come from.

    Raises:
        UsageError: there is no clusterer where one is needed.
        FedwcaError: see `check_labels`; or the aggregator's groups are no numbers of clients' groups.
    """
    aggregator, clusterer, clients = method.aggregator, method.clusterer, len(present)
    notes: Mapping[str, Any] = {}

    def cluster() -> Tensor:
        nonlocal notes
        if clusterer is None:
            raise UsageError(f"method {method.name!r}: aggregator {aggregator.name!r} groups by a clusterer; name one")
        present_signatures, labels = signatures(), torch.zeros(clients, dtype=torch.int64)
        labels[present] = check_labels(clusterer(present_signatures), int(present.sum()), clusterer.name)
        notes = check_notes(clusterer.notes(present_signatures), clusterer.name)
        return labels

    def deal() -> Tensor:
        return deal_first_groups(aggregator, present, keys)

    choices = {client: int(upload.label[0]) for client, upload in uploads.items() if upload.label is not None}
    labels = aggregator.grouping.assign(GroupingInput(round, clients, state, choices, cluster, deal))
    return check_groups(labels, clients, aggregator, "grouping"), notes


def deal_first_groups(aggregator: Aggregator, present: Tensor, keys: Keys) -> Tensor:
    """The groups ``[K]`` int64 of round 0, in which clients cannot choose yet; 0 where a client is not present.

    Args:
        aggregator: one whose clients choose their group.
        present: clients whose models count ``[K]`` bool.
        keys: where random numbers come from.

    Raises:
        FedwcaError: these are no numbers of groups.
    """
    clients = len(present)
    dealt, draws = torch.zeros(clients, dtype=torch.int64), uniform(keys(0, -1, "partition"), torch.arange(clients))
    first = aggregator.first_groups(int(present.sum()), draws[present])
    dealt[present] = check_groups(first, int(present.sum()), aggregator, "first_groups")
    return dealt


def check_groups(groups: Tensor, clients: int, aggregator: Aggregator, answer_name: str) -> Tensor:
    """The groups of K clients that an aggregator or its grouping gave, if they are numbers from 0 ``[K]`` int64.

    Raises:
        FedwcaError: they are not.
    """
    valid = isinstance(groups, Tensor) and groups.shape == (clients,) and groups.dtype == torch.int64
    if not valid or bool((groups < 0).any()):
        raise FedwcaError(
            f"aggregator {aggregator.name!r}: {answer_name} gave {describe_value(groups)}; right are the groups of "
            f"{clients} clients, int64 from 0"
        )
    return groups


def compare_clients(clusterer: Clusterer | None, signatures: Signatures) -> tuple[Tensor, Metric]:
    """The vectors of clients ``[K, P]`` that a newcomer's is compared with to find the nearest client, and the metric.

    They are what clusters were made from; the first layer's weights where the clusterer compares no client vectors.
    `fedwca.functional.member_distances` takes both.
    """
    compared = None if clusterer is None else read_client_vectors(clusterer, signatures)
    return (signatures.layer_weights(1), "cosine") if compared is None else compared


def read_client_vectors(clusterer: Clusterer, signatures: Signatures) -> tuple[Tensor, Metric] | None:
    """The vectors by which a clusterer compares K clients ``[K, P]``, and their metric; None: it compares none.

    Raises:
        FedwcaError: it gives something else.
    """
    compared: Any = clusterer.client_vectors(signatures)
    if compared is None:
        return None
    metric: Any
    vectors, metric = compared if isinstance(compared, tuple) and len(compared) == 2 else (compared, None)
    is_floating = isinstance(vectors, Tensor) and vectors.dim() > 1 and vectors.is_floating_point()
    if is_floating and len(vectors) == signatures.clients and metric in get_args(Metric):
        return vectors.flatten(1), metric
    raise FedwcaError(
        f"clusterer {clusterer.name!r}: client_vectors gave {describe_value(vectors)} and the metric {metric!r}; right "
        f"are floating-point vectors of {signatures.clients} clients, and {' or '.join(get_args(Metric))}"
    )
