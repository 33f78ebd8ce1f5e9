"""From a round's uploads to what the server remembers next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedwca.deploy.context import ServerContext
from fedwca.deploy.messages import Parcel
from fedwca.deploy.robust import cluster_uploads, contributions, gather_models, nearest_cluster
from fedwca.deploy.rules import ServerState
from fedwca.deploy.single_client import drop_single_means
from fedwca.federated.round import Server
from fedwca.federated.validation import remember_uploads


def next_state(
    setting: ServerContext,
    memory: ServerState,
    uploads: Mapping[int, Parcel],
    rows: Mapping[int, Tensor],
    late: set[int],
) -> ServerState:
    """The memory after a round: clusters, means, and what the aggregator learns.

    Args:
        setting: the federation's.
        memory: before.
        uploads: answers by client.
        rows: the models ``[P]`` in those that count.
        late: clients among them that are placed in a cluster now.

    Raises:
        FedwcaError: round 0 left a client alone in its cluster, and that is refused.
    """
    method, rules, layout = setting.method, setting.rules, setting.layout
    aggregator, batch_norm = method.aggregator, setting.composition.batch_norm
    round, server, clients = memory.round, memory.server, rules.clients
    bank = server.source.repeat(clients, 1)
    for client, row in rows.items():
        bank[client] = row
    present = torch.tensor([client in rows and client not in late for client in range(clients)])
    samples = list(memory.samples)
    for client in rows:
        samples[client] = int(uploads[client].notes["samples"])
    choices = {client: int(uploads[client].report["label"][0]) for client in rows if "label" in uploads[client].report}
    labels = cluster_uploads(round, server, method, layout, bank, present, choices, setting.keys)
    for client in late:
        labels[client] = nearest_cluster(rows[client], memory.anchors, server.source, layout)
    sizes = torch.tensor([max(1, number) for number in samples])
    gathers, shares = server.rows, memory.shares
    if aggregator.travels:
        gather = aggregator.gather(server.state, labels, sizes, present, len(server.rows))
        weights = drop_single_means(setting, memory, gather)
        gathers = gather_models(weights, server.rows, bank, layout, batch_norm, rules.robust)
        shares = contributions(weights, memory.shares)
    reports = _reports(setting, memory, uploads, present)
    learned = aggregator.learn(server.state, labels, reports, present)
    beside = remember_uploads(server.state, {client: uploads[client].beside for client in rows}, clients)
    waiting = memory.waiting | late
    if aggregator.expected(round) or not aggregator.reports:
        waiting -= {client for client in rows if client not in late or not aggregator.reports}
    return replace(
        memory,
        round=round + 1,
        server=Server(gathers, {**learned, **beside}, server.source),
        shares=shares,
        anchors=memory.anchors if round else gathers,
        samples=tuple(samples),
        waiting=frozenset(waiting),
    )


def _reports(
    setting: ServerContext, memory: ServerState, uploads: Mapping[int, Parcel], present: Tensor
) -> dict[str, Tensor]:
    """What clients reported ``{name: [K, …]}``; NaN for absent clients, as `Outcome.report` has it."""
    here = present.nonzero()[:, 0].tolist()
    names = setting.method.aggregator.expected(memory.round) if memory.round else {}
    stacked = {}
    for name in names:
        values = {client: uploads[client].report[name].double() for client in here}
        missing = torch.full_like(next(iter(values.values())), torch.nan)
        stacked[name] = torch.stack([values.get(client, missing) for client in range(len(present))])
    return stacked
