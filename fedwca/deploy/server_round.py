"""The end of a round at a deployment's server: late clients, defences, the server's step, and final models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import torch
from torch import Tensor

from fedwca.core.grouping import TRUSTED, averaged_clients
from fedwca.deploy.defences import robust_means
from fedwca.deploy.protect_single_clients import check_not_single_model, drop_single_means, is_single, mix_shares
from fedwca.deploy.read_answers import ReceivedAnswer
from fedwca.deploy.server_context import ModelSignatures, ServerContext
from fedwca.deploy.server_tasks import describe_session
from fedwca.deploy.session_state import ClusteredClients, SessionState
from fedwca.deploy.wire_messages import Parcel, row_to_tensors
from fedwca.engine.parameter_layout import mix_rows
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.aggregator_weights import deliver_mixtures, gather_mixtures
from fedwca.federated.assign_clusters import assign_clusters, compare_clients
from fedwca.federated.server import Server, next_state, spread_trained_mean, take_server_step
from fedwca.federated.upload_checks import finite_models
from fedwca.functional import Metric, member_distances


def assign_late_client(context: ServerContext, state: SessionState, answer: ReceivedAnswer) -> int | None:
    """Return the cluster of the client of round 0 that is nearest to a late client, which trained the source model.

    None if the late client cannot be compared, as with a zero vector under the cosine metric.
    """
    clustered = state.clustered
    assert clustered is not None
    vectors, _ = _compare_answers(context, state, [answer])
    if vectors.shape[1:] != clustered.vectors.shape[1:]:  # of another layer, the first that this client trained
        return None
    labels = state.server.state["labels"][clustered.numbers]
    try:
        distances, _ = member_distances(clustered.vectors, vectors[0], labels, clustered.metric)
    except UsageError:
        return None
    return int(distances.argmin())


def find_incomparable(context: ServerContext, state: SessionState, answers: Mapping[int, ReceivedAnswer]) -> list[int]:
    """Return the clients that cannot be clustered with the others.

    Their vectors are not finite, or zero if the metric is cosine; which layer is read depends on all of them.
    """
    if not answers:
        return []
    vectors, metric = _compare_answers(context, state, list(answers.values()))
    usable = vectors.isfinite().flatten(1).all(1)
    if metric == "cosine":
        usable &= vectors.flatten(1).any(1)
    return [client for client, is_usable in zip(answers, usable.tolist(), strict=True) if not is_usable]


def _compare_answers(
    context: ServerContext, state: SessionState, answers: Sequence[ReceivedAnswer]
) -> tuple[Tensor, Metric]:
    """Return the vectors ``[N, …]`` by which clients are compared, as clusters were made, and the metric."""
    return compare_clients(context.method.clusterer, _read_signatures(context, state, answers))


def _read_signatures(context: ServerContext, state: SessionState, answers: Sequence[ReceivedAnswer]) -> ModelSignatures:
    """Return the signatures of clients by their answers, at least one."""
    moments = [answer.moments for answer in answers if answer.moments is not None]
    models = torch.stack([answer.model for answer in answers])
    return context.signatures(models, state.server.source, torch.stack(moments) if moments else None)


def close_session_round(
    context: ServerContext, state: SessionState, answers: Mapping[int, ReceivedAnswer], late: Mapping[int, int]
) -> SessionState:
    """Return the state after a round: clusters, means, and what the aggregator learns.

    Args:
        context: the federation's constants.
        state: the session's state before the round.
        answers: accepted answers, by client.
        late: by late client, the cluster it is assigned to; models of late clients are not averaged in this round.

    Raises:
        FedwcaError: round 0 made a cluster of a single client, and the rules refuse that; or a mean is not finite.
    """
    method, rules, server, clients = context.method, context.rules, state.server, context.rules.clients
    aggregator, round = method.aggregator, state.round
    uploads = {client: answer.upload for client, answer in answers.items()}
    samples = tuple(answers[k].samples if k in answers else previous for k, previous in enumerate(state.samples))
    present = torch.tensor([client in answers and client not in late for client in range(clients)])
    bank = torch.stack([answers[k].model if k in answers else server.source for k in range(clients)])
    on_time = [answers[k] for k in present.nonzero()[:, 0].tolist()]
    labels, _ = assign_clusters(
        round, method, server.state, uploads, present, lambda: _read_signatures(context, state, on_time), context.keys
    )
    if late:
        labels = labels.index_put((torch.tensor(list(late)),), torch.tensor(list(late.values())))
    rows, shares, trusted = server.rows, state.shares, update_trusted(context, state, answers)
    averaged = present
    if aggregator.sends_models:
        sizes = torch.tensor([max(1, number) for number in samples])
        counted = averaged_clients(labels, present, trusted)
        mean_inputs = (labels, sizes, present, trusted, context.layout.trained)
        give_back = spread_trained_mean(
            method, bank, *mean_inputs, lambda w, models: robust_means(mix_rows(w, models), w, models, rules.robust)
        )
        means = gather_mixtures(aggregator, server.state, labels, sizes, counted, len(rows))
        weights = drop_single_means(context, state, means, labels, gated=trusted is not None)
        averaged = (weights[:, len(rows) :] > 0).any(0)
        rows = _mix_next_rows(context, server.rows, bank, weights)
        if trusted is not None and bool((dropped := (weights != means).any(1)).any()):
            members = gather_mixtures(aggregator, server.state, labels, sizes, present, len(server.rows))
            _take_statistics(context, server.rows, bank, rows, members, dropped)
        rows = take_server_step(aggregator, server.rows, rows, weights, bank, context.layout.trained)
        give_back()  # late clients are compared with the models that clients uploaded
        if not bool(finite_models(rows).all()):
            raise FedwcaError(f"round {round}: a mean of the clients' models is not finite; it is not kept")
        shares = mix_shares(weights, state.shares)
    learned = next_state(aggregator, server.state, labels, uploads, present, averaged)
    learned = learned if trusted is None else {**learned, TRUSTED: trusted}
    clustered = state.clustered
    if not round and aggregator.grouping.needs_clusterer:
        clustered = ClusteredClients(present.nonzero()[:, 0], *_compare_answers(context, state, on_time))
    waiting = state.waiting | frozenset(late)
    if aggregator.expected_reports(round) or not aggregator.reports:
        waiting -= {client for client in answers if client not in late or not aggregator.reports}
    return replace(
        state,
        round=round + 1,
        server=Server(rows, learned, server.source),
        shares=shares,
        samples=samples,
        clustered=clustered,
        waiting=waiting,
    )


def _mix_next_rows(context: ServerContext, rows: Tensor, bank: Tensor, weights: Tensor) -> Tensor:
    """Return the next rows ``[C, P]`` by `gather`'s weights ``[C, R+K]``, robust means where the rules say so."""
    mixed = context.composition.batch_norm.gather(weights, rows, bank, context.layout)
    return robust_means(mixed, weights, bank, context.rules.robust)


def _take_statistics(
    context: ServerContext, rows: Tensor, bank: Tensor, next_rows: Tensor, members: Tensor, dropped: Tensor
) -> None:
    """Give rows whose only trusted client was dropped the BatchNorm statistics of their clients, in place.

    Rows of clusters in which nobody is trusted have them too. A cluster of which one client was heard has none to take.

    Args:
        context: the federation's constants.
        rows: previous ones ``[R, P]``.
        bank: the clients' models ``[K, P]``.
        next_rows: ``[C, P]``; changed in place.
        members: `gather`'s weights of all clients that were heard ``[C, R+K]``.
        dropped: the rows ``[C]`` bool.
    """
    taking = dropped & ~is_single(members[:, len(rows) :])
    if bool(taking.any()):
        trained = context.layout.trained
        next_rows[taking, trained:] = _mix_next_rows(context, rows, bank, members[taking])[:, trained:]


def update_trusted(context: ServerContext, state: SessionState, answers: Mapping[int, ReceivedAnswer]) -> Tensor | None:
    """Return how far clients' labels are trusted ``[K]``, 0 to 1, with the answers of new clients included.

    None if the pseudo-labeler does not select clients.
    """
    if not context.method.pseudo_labeler.selects_clients:
        return None
    # Clients that have never answered are in no cluster yet and must not count as the most trusted of one.
    answered = torch.tensor(state.samples) > 0
    trusted = torch.where(answered, state.server.state.get(TRUSTED, torch.ones(len(answered))), 0.0)
    for client, answer in answers.items():
        if not state.samples[client]:  # each client is asked once
            trusted[client] = answer.trusted
    return trusted


def make_final_parcels(
    context: ServerContext, state: SessionState, clients: Sequence[int], informed: Set[int]
) -> dict[int, Parcel]:
    """Return the parcels with the models that clients end with.

    Clients that are not informed are also sent the source model and the composition again.

    Args:
        context: the federation's constants.
        state: the session's state.
        clients: clients that took part in a round.
        informed: clients that have the source model and the composition.

    Raises:
        FedwcaError: a model was made from the upload of a single other client, and the rules refuse that.
    """
    aggregator, rows = context.method.aggregator, state.server.rows
    if not aggregator.sends_models:
        # Each client has continued from its own model and ends with it.
        return {client: Parcel("final", state.round) for client in clients}
    weights = deliver_mixtures(aggregator, state.server.state, len(rows), len(state.samples))
    parcels, models = {}, dict[bytes, Mapping[str, Tensor]]()  # of a cluster's clients, held once
    for client in clients:
        subject = f"round {state.round}: a model sent to client {client}"
        check_not_single_model(context, state, weights[client], subject, client)
        if (key := weights[client].numpy().tobytes()) not in models:
            row = context.mix(weights[client], rows)
            models[key] = row_to_tensors(row, context.layout, context.composition.transport)
        parcel = Parcel("final", state.round, {"sent-0": models[key]})
        if client not in informed:
            notes = describe_session(context, client)
            parcel = replace(parcel, models={**parcel.models, "source": context.source}, notes=notes)
        parcels[client] = parcel
    return parcels
