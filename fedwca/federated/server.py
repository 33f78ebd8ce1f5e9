"""The server's part of a round, which simulation and deployment share: values in, values out, no engine and no file.

In the order of a round: who takes part, what they are sent, what is taken from them, who is grouped with whom, and what
the server holds next. The means themselves are `Aggregator.gather`'s weights times models, which an engine multiplies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedwca.core.component_answers import check_tensors, describe_value
from fedwca.core.grouping import GroupingInput, check_labels, check_notes, untrained_clients
from fedwca.core.interfaces import Aggregator, Clusterer, Objective
from fedwca.core.messages import Bounded, Offer, Signatures, State
from fedwca.engine.parameter_layout import Layout, mix_rows
from fedwca.engine.randomness import Keys, uniform
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.aggregator_weights import offer_mixtures
from fedwca.federated.method import Method
from fedwca.federated.upload_checks import ExpectedUpload, Upload
from fedwca.functional import Metric, cluster_means

COLLECTED = "collected."
"""How a server's state calls what objectives collected and clients uploaded last."""


@dataclass(frozen=True)
class Server:
    """What the server holds between rounds."""

    rows: Tensor
    """``[R, P]``; before round 0 one row, the source model, or a row for each client."""
    state: State
    """What the aggregator remembers, and under ``collected.<objective>.<name>`` what clients collected
    last ``[K, …]``; before round 0 empty, or what `Aggregator.initial_state` says."""
    source: Tensor
    """``[P]``, the model everybody started from."""


def find_unlabeled(labels: Sequence[Tensor | None]) -> Tensor:
    """Clients ``[K]`` bool that have no labels where others do: they train in no round and are in no mean.

    >>> find_unlabeled([None, torch.tensor([3])]).tolist(), find_unlabeled([None, None]).tolist()
    ([True, False], [False, False])
    """
    some = any(own is not None for own in labels)
    return torch.tensor([some and own is None for own in labels])


def offer_source(clients: int) -> Offer:
    """Round 0: everybody is sent the server's only row."""
    return Offer.of_personal(torch.ones(clients, 1, dtype=torch.float64))


def offer_own(clients: int) -> Offer:
    """Every client goes on from a row of its own."""
    return Offer.of_personal(torch.eye(clients, dtype=torch.float64))


def offer_models(round: int, server: Server, aggregator: Aggregator, clients: int, trained: int) -> Offer:
    """What each client is sent at the start of a round.

    Args:
        round: r, counted from 0.
        server: what the server holds.
        aggregator: says what is sent after round 0, or from it on.
        clients: K.
        trained: trained parameters of a row, which come first.
    """
    if round or aggregator.from_start:
        return offer_mixtures(aggregator, server.state, round, server.rows[:, :trained], clients)
    return offer_source(clients) if len(server.rows) == 1 else offer_own(clients)


def pool_collected(objectives: Sequence[Objective], state: State) -> dict[str, Tensor]:
    """What every client is sent beside models, made of what they collected and uploaded last."""
    shared: dict[str, Tensor] = {}
    for objective in objectives:
        prefix = f"{COLLECTED}{objective.name}."
        own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        shared |= check_tensors(objective.pool(own), f"objective {objective.name!r}: pool") if own else {}
    return shared


def declare_collected(objectives: Sequence[Objective], classes: int, features: int) -> dict[str, Bounded]:
    """What objectives declare that they collect, by ``<objective>.<name>``, for M classes and q features."""
    return {
        f"{objective.name}.{name}": bounded
        for objective in objectives
        for name, bounded in objective.declares(classes, features).items()
    }


def expect_uploads(
    round: int, server: Server, aggregator: Aggregator, offer: Offer, collected: Mapping[str, Bounded]
) -> ExpectedUpload:
    """What is taken from each client beside its model; from the source model only what objectives collect."""
    if not round and not aggregator.from_start:
        return ExpectedUpload(collected=collected)
    clusters = len(server.rows) if round and aggregator.grouping.clients_choose else 0
    return ExpectedUpload(aggregator.expected(round), offer.shared.shape[0], clusters, collected)


def assign_clusters(
    round: int,
    method: Method,
    state: State,
    uploads: Mapping[int, Upload],
    present: Tensor,
    signatures: Callable[[], Signatures],
    keys: Keys,
) -> tuple[Tensor, Mapping[str, Any]]:
    """Cluster of each client ``[K]``, as the aggregator's grouping says, and what a clusterer that was asked notes.

    Args:
        round: r, counted from 0.
        method: its aggregator says how clients are grouped, its clusterer groups them where that needs one.
        state: what the server remembers of earlier rounds.
        uploads: by client, of those that took part.
        present: clients whose models count ``[K]`` bool; others are in cluster 0 in round 0.
        signatures: gives those of the clients that are present, in order; called where the clusterer reads them.
        keys: where random numbers come from.

    Raises:
        UsageError: there is no clusterer where one is needed.
        FedwcaError: see `check_labels`.
    """
    aggregator, clusterer, clients = method.aggregator, method.clusterer, len(present)
    notes: Mapping[str, Any] = {}

    def cluster() -> Tensor:
        nonlocal notes
        if clusterer is None:
            raise UsageError(f"method {method.name!r}: aggregator {aggregator.name!r} groups by a clusterer; name one")
        found, labels = signatures(), torch.zeros(clients, dtype=torch.int64)
        labels[present] = check_labels(clusterer(found), int(present.sum()), clusterer.name)
        notes = check_notes(clusterer.notes(found), clusterer.name)
        return labels

    def deal() -> Tensor:
        dealt, draws = torch.zeros(clients, dtype=torch.int64), uniform(keys(0, -1, "partition"), torch.arange(clients))
        dealt[present] = aggregator.first(int(present.sum()), draws[present])
        return dealt

    choices = {client: int(upload.label[0]) for client, upload in uploads.items() if upload.label is not None}
    labels = aggregator.grouping.assign(GroupingInput(round, clients, state, choices, cluster, deal))
    return labels, notes


def compare_clients(clusterer: Clusterer | None, signatures: Signatures) -> tuple[Tensor, Metric]:
    """What a newcomer is compared with ``[K, …]``, and the distance: whoever comes later joins the nearest client.

    The same that clusters were made of; the first layer's weights where the clusterer compares nothing of clients.
    `fedwca.functional.member_distances` takes both.
    """
    compared = None if clusterer is None else clusterer.client_vectors(signatures)
    return (signatures.layer(1), "cosine") if compared is None else compared


def spread_trained_mean(
    method: Method,
    models: Tensor,
    labels: Tensor,
    sizes: Tensor,
    present: Tensor,
    trusted: Tensor | None,
    trained: int,
    mean: Callable[[Tensor, Tensor], Tensor] = mix_rows,
) -> Callable[[], None]:
    """Give clients of groups in which nobody trains the mean parameters of those that are trusted most, in place.

    Their own BatchNorm statistics stay, so a mean over their group has the trained parameters and its statistics.
    Nothing is given where the method does not say so, nobody trains, or a single client that trains is present: its
    model would be handed on alone.

    Args:
        method: its labeler says whether, its aggregator how a mean weighs clients.
        models: of the clients ``[K, P]``.
        labels: group of each client ``[K]``.
        sizes: training images of each client ``[K]``.
        present: clients that took part ``[K]`` bool.
        trusted: how far ``[K]``, 0 to 1; None: all are.
        trained: trained parameters of a model, which come first.
        mean: makes means ``[1, P]`` of weights ``[1, K]`` and models.

    Returns:
        What gives these clients their own models back, when the server has averaged.
    """
    nothing = lambda: None  # noqa: E731
    if trusted is None or not method.pseudo_labeler.untrained_take_mean or not method.aggregator.travels:
        return nothing
    takes, gives = present & untrained_clients(labels, trusted), present & (trusted == trusted.max()) & (trusted > 0)
    if not bool(takes.any()) or int(gives.sum()) < 2:
        return nothing
    weights = cluster_means(torch.zeros_like(labels), 1, method.aggregator.client_weights(sizes), gives)
    here = takes.to(models.device)
    own = models[here, :trained]
    models[here, :trained] = mean(weights, models)[:, :trained]

    def give_back() -> None:
        models[here, :trained] = own

    return give_back


def take_server_step(
    aggregator: Aggregator, rows: Tensor, mixed: Tensor, gather: Tensor, models: Tensor, trained: int
) -> Tensor:
    """The server's next rows ``[C, P]``: mixtures, or what the aggregator's own step makes of them.

    Args:
        aggregator: may have a step.
        rows: previous ones ``[R, P]``.
        mixed: mixtures of them and of the clients' models ``[C, P]``; changed in place.
        gather: what they are mixtures by ``[C, R+K]``.
        models: the clients' ``[K, P]``.
        trained: trained parameters of a row, which come first.

    Raises:
        FedwcaError: the step is no such rows.
    """
    if not aggregator.takes_step:
        return mixed
    given = (rows[:, :trained], mixed[:, :trained], gather[:, len(rows) :], models[:, :trained])
    found = aggregator.server_step(*given)
    if not isinstance(found, Tensor) or found.shape != given[1].shape:
        shown = describe_value(found)
        raise FedwcaError(
            f"aggregator {aggregator.name!r}: server_step gave {shown}; right are rows {list(given[1].shape)}"
        )
    mixed[:, :trained] = found
    return mixed


def keep_layers(aggregator: Aggregator, rows: Tensor, models: Tensor, layout: Layout) -> Tensor:
    """Rows ``[K, P]`` with each client's own last layers, where these stay with it; all others as they are.

    Args:
        aggregator: says how many stay.
        rows: the server's; changed in place.
        models: the clients' own ``[K, P]``.
        layout: of a row.
    """
    if aggregator.keeps:
        own = layout.last_layers(aggregator.keeps)
        for positions in (own, *layout.statistics_of(own)):  # a mean of others' statistics does not fit own layers
            rows[:, positions] = models[:, positions]
    return rows


def stack_by_client(values: Mapping[int, Tensor], clients: int) -> Tensor:
    """Values of some of K clients ``[K, …]``; NaN for the others."""
    missing = torch.full_like(next(iter(values.values())), torch.nan)
    return torch.stack([values.get(client, missing) for client in range(clients)])


def stack_reports(uploads: Mapping[int, Upload], clients: int) -> dict[str, Tensor]:
    """What clients reported: ``{name: [K, …]}``; NaN for those without an upload."""
    names = next(iter(uploads.values())).report
    return {name: stack_by_client({k: upload.report[name] for k, upload in uploads.items()}, clients) for name in names}


def next_state(
    aggregator: Aggregator,
    state: State,
    labels: Tensor,
    uploads: Mapping[int, Upload],
    present: Tensor,
    averaged: Tensor,
) -> State:
    """What the server remembers after a round: what the aggregator learns, and what all uploads collected.

    Args:
        aggregator: learns.
        state: before.
        labels: cluster of each client ``[K]``.
        uploads: by client.
        present: clients whose reports count ``[K]`` bool; each has an upload.
        averaged: those of them whose models are in a mean.

    Raises:
        FedwcaError: the aggregator's part is no mapping of tensors; or see `remember_collected`.
    """
    counted = {client: upload for client, upload in uploads.items() if bool(present[client])}
    heard = present if aggregator.reports else averaged
    learned = aggregator.learn(state, labels, stack_reports(counted, len(present)), heard)
    learned = check_tensors(learned, f"aggregator {aggregator.name!r}: learn")
    own = learned.get("labels")
    if own is None or own.shape != (len(present),) or own.dtype != torch.int64:
        shown = "without labels" if own is None else f"with labels {describe_value(own)}"
        raise FedwcaError(
            f"aggregator {aggregator.name!r}: learn gave a state {shown}; right are labels, int64 [{len(present)}], "
            "the cluster of each client"
        )
    return {**learned, **remember_collected(state, uploads, len(present))}


def remember_collected(state: State, uploads: Mapping[int, Upload], clients: int) -> dict[str, Tensor]:
    """What each client collected and uploaded last ``[K, …]``, as entries of a state; zeros where it never did.

    Args:
        state: the server's, before.
        uploads: by client.
        clients: K.

    Raises:
        FedwcaError: values are not finite, or two clients' have different names or shapes.
    """
    found: dict[str, Tensor] = {}
    first, model = next((client, upload.collected) for client, upload in uploads.items())
    for client, upload in uploads.items():
        for name in sorted(upload.collected.keys() | model.keys()):
            value, like = upload.collected.get(name), model.get(name)
            if value is None or like is None or value.shape != like.shape:
                shapes = [None if v is None else tuple(v.shape) for v in (value, like)]
                raise FedwcaError(f"client {client} uploaded {name} of shape {shapes[0]}, client {first} {shapes[1]}")
            if not bool(torch.isfinite(value).all()):
                raise FedwcaError(f"client {client} uploaded {name} with values that are not finite")
            key = COLLECTED + name
            if key not in found:
                found[key] = state[key].clone() if key in state else value.new_zeros(clients, *value.shape)
            found[key][client] = value
    return found
