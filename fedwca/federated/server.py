"""The server's part of a round, shared by simulation and deployment: values in, values out, no engine and no file.

In the order of a round: who takes part, what they are sent, what is accepted from them, and what the server holds next.
Who is grouped with whom is in `fedwca.federated.assign_clusters`. The means themselves are `Aggregator.gather`'s
weights times models, computed by an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.core.aggregator import checked_client_weights
from fedwca.core.component_answers import check_tensors, describe_value, only_reads
from fedwca.core.grouping import untrained_clients
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Bounded, Offer, State
from fedwca.engine.parameter_layout import Layout, mix_rows
from fedwca.errors import FedwcaError
from fedwca.federated.aggregator_weights import offer_mixtures
from fedwca.federated.collected_values import remember_collected
from fedwca.federated.method import Method
from fedwca.federated.upload_checks import ExpectedUpload, Upload
from fedwca.functional import cluster_means


@dataclass(frozen=True)
class Server:
    """What the server holds between rounds."""

    rows: Tensor
    """``[R, P]``; before round 0 one row, the source model, or a row for each client."""
    state: State
    """What the aggregator remembers, and under ``collected.<objective>.<name>`` what clients collected
    last ``[K, …]``; before round 0 empty, or what `Aggregator.initial_state` gives."""
    source: Tensor
    """``[P]``, the model everybody started from."""


def find_unlabeled(labels: Sequence[Tensor | None]) -> Tensor:
    """Clients ``[K]`` bool that have no labels where others do: they train in no round and are in no mean.

    >>> find_unlabeled([None, torch.tensor([3])]).tolist(), find_unlabeled([None, None]).tolist()
    ([True, False], [False, False])
    """
    any_labels = any(client_labels is not None for client_labels in labels)
    return torch.tensor([any_labels and client_labels is None for client_labels in labels])


def offer_source(clients: int) -> Offer:
    """Round 0: everybody is sent the server's only row."""
    return Offer.of_personal(torch.ones(clients, 1, dtype=torch.float64))


def offer_own(clients: int) -> Offer:
    """Every client is sent a row of its own, in order."""
    return Offer.of_personal(torch.eye(clients, dtype=torch.float64))


def offer_models(round: int, server: Server, aggregator: Aggregator, clients: int, trained: int) -> Offer:
    """What each client is sent at the start of a round.

    Args:
        round: r, counted from 0.
        server: what the server holds.
        aggregator: decides what is sent after round 0, or in round 0 too.
        clients: K.
        trained: number of trained parameters of a row, which come first.
    """
    if round or aggregator.offers_in_round_0:
        return offer_mixtures(aggregator, server.state, round, server.rows[:, :trained], clients)
    return offer_source(clients) if len(server.rows) == 1 else offer_own(clients)


def expect_uploads(
    round: int, server: Server, aggregator: Aggregator, offer: Offer, collected: Mapping[str, Bounded]
) -> ExpectedUpload:
    """What the server accepts from a client besides its model; in round 0 usually only what objectives collect."""
    if not round and not aggregator.offers_in_round_0:
        return ExpectedUpload(collected=collected)
    clusters = len(server.rows) if round and aggregator.grouping.clients_choose else 0
    reports = aggregator.expected_reports(round)
    return ExpectedUpload(reports, offer.shared.shape[0], clusters, collected, aggregator=aggregator.name)


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
    """Overwrite models of groups in which nobody trains with the mean of the most trusted clients, in place.

    Their own BatchNorm statistics stay, so a mean over their group has the trained parameters and its statistics.
    Nothing is overwritten where the method does not ask for it, nobody trains, or fewer than two of the most trusted
    clients are present, since a single model would be passed on unmixed.

    Args:
        method: its labeler decides whether to do so, its aggregator how the mean weighs clients.
        models: of the clients ``[K, P]``.
        labels: group of each client ``[K]``.
        sizes: training images of each client ``[K]``.
        present: clients that took part ``[K]`` bool.
        trusted: how far ``[K]``, 0 to 1; None: all are.
        trained: number of trained parameters of a model, which come first.
        mean: computes means ``[1, P]`` from weights ``[1, K]`` and models.

    Returns:
        A function that restores these clients' own models, to be called after the server has averaged.
    """
    do_nothing = lambda: None  # noqa: E731
    if trusted is None or not method.pseudo_labeler.untrained_take_mean or not method.aggregator.sends_models:
        return do_nothing
    receives, gives = present & untrained_clients(labels, trusted), present & (trusted == trusted.max()) & (trusted > 0)
    if not bool(receives.any()) or int(gives.sum()) < 2:
        return do_nothing
    weights = cluster_means(torch.zeros_like(labels), 1, checked_client_weights(method.aggregator, sizes), gives)
    if not bool(weights.any()):  # those who give have no weight in a mean
        return do_nothing
    receivers = receives.to(models.device)
    original = models[receivers, :trained]
    models[receivers, :trained] = mean(weights, models)[:, :trained]

    def give_back() -> None:
        models[receivers, :trained] = original

    return give_back


def take_server_step(
    aggregator: Aggregator, rows: Tensor, mixed: Tensor, gather: Tensor, models: Tensor, trained: int
) -> Tensor:
    """The server's next rows ``[C, P]``: the mixtures, or the result of the aggregator's own step from them.

    Args:
        aggregator: may have a step.
        rows: previous ones ``[R, P]``.
        mixed: mixtures of them and of the clients' models ``[C, P]``; changed in place.
        gather: the weights of the mixtures ``[C, R+K]``.
        models: the clients' ``[K, P]``.
        trained: number of trained parameters of a row, which come first.

    Raises:
        FedwcaError: the step does not give rows of that shape.
    """
    if not aggregator.has_server_step:
        return mixed
    arguments = (rows[:, :trained], mixed[:, :trained], gather[:, len(rows) :], models[:, :trained])
    with only_reads(f"aggregator {aggregator.name!r}: server_step", arguments[0], *arguments[2:]):
        next_rows = aggregator.server_step(*arguments)
    if not isinstance(next_rows, Tensor) or next_rows.shape != arguments[1].shape:
        description = describe_value(next_rows)
        raise FedwcaError(
            f"aggregator {aggregator.name!r}: server_step gave {description}; right are rows {list(arguments[1].shape)}"
        )
    mixed[:, :trained] = next_rows
    return mixed


def keep_layers(aggregator: Aggregator, rows: Tensor, models: Tensor, layout: Layout) -> Tensor:
    """Rows ``[K, P]`` with each client's own last layers, if these stay with clients; else the rows unchanged.

    Args:
        aggregator: decides how many layers stay.
        rows: the server's; changed in place.
        models: the clients' own ``[K, P]``.
        layout: of a row.

    Raises:
        FedwcaError: layers stay with clients, and there is not a row for each.
    """
    if aggregator.local_layers:
        if len(rows) != len(models):
            raise FedwcaError(
                f"aggregator {aggregator.name!r}: gather gave weights of {len(rows)} rows; right with local_layers are "
                f"{len(models)}, one for each client, as fedper gives"
            )
        own_layers = layout.last_layers(aggregator.local_layers)
        # Their BatchNorm statistics too, since averaged ones do not fit a client's own layers.
        for positions in (own_layers, *layout.statistics_of(own_layers)):
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
        averaged: those of them whose models are averaged.

    Raises:
        FedwcaError: the aggregator's part is no mapping of tensors with labels; or see `remember_collected`.
    """
    counted = {client: upload for client, upload in uploads.items() if bool(present[client])}
    reporting = present if aggregator.reports else averaged
    report = stack_reports(counted, len(present))
    with only_reads(f"aggregator {aggregator.name!r}: next_state", state, labels, report, reporting):
        learned = aggregator.next_state(state, labels, report, reporting)
    check_tensors(learned, f"aggregator {aggregator.name!r}: next_state")
    cluster_labels = learned.get("labels")
    if cluster_labels is None or cluster_labels.shape != (len(present),) or cluster_labels.dtype != torch.int64:
        description = "without labels" if cluster_labels is None else f"with labels {describe_value(cluster_labels)}"
        raise FedwcaError(
            f"aggregator {aggregator.name!r}: next_state gave a state {description}; right are labels, int64 "
            f"[{len(present)}], the cluster of each client"
        )
    return {**learned, **remember_collected(state, uploads, len(present))}
