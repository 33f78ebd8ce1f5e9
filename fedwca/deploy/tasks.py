"""What one client is sent in a round, and what is then taken from it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import torch
from torch import Tensor

from fedwca.core.messages import Offer
from fedwca.deploy.context import ServerContext
from fedwca.deploy.messages import Parcel, row_to_tensors, tensors_to_row
from fedwca.deploy.rules import ServerState
from fedwca.deploy.single_client import refuse_single
from fedwca.deploy.validation import Expected


def unplaced(setting: ServerContext, memory: ServerState, client: int) -> bool:
    """Whether a client joins so late that it must be placed in a cluster first."""
    needs_clusterer = setting.method.aggregator.grouping.needs_clusterer
    return bool(memory.round and not memory.samples[client] and needs_clusterer)


def task(
    setting: ServerContext,
    memory: ServerState,
    client: int,
    offer: Offer,
    shared: Tensor,
    beside: Mapping[str, Tensor],
    first: bool,
    informed: bool,
) -> tuple[Parcel, Expected]:
    """One client's task.

    Args:
        setting: the federation's.
        memory: what the server holds.
        client: k.
        offer: of this round.
        shared: the offer's shared models ``[S, P]``.
        beside: what everybody is sent that is no model.
        first: it trains from the source model, which it has.
        informed: it knows the source model and the composition.
    """
    composition, aggregator = setting.composition, setting.method.aggregator
    transport, token = composition.transport, secrets.token_hex(8)
    notes: dict[str, int | float | str] = {"token": token, "first": int(first), "personal": 1}
    models: dict[str, Mapping[str, Tensor]] = {}
    if not informed:
        models["source"] = {name: tensor.cpu() for name, tensor in setting.network.state_dict().items()}
        notes |= {"composition": composition.model_dump_json(), "client": client}
    own = memory.server.source
    if not first and aggregator.travels:
        sent = torch.cat([setting.mixed(offer.personal[client], memory.server.rows), shared])
        models |= {f"sent-{i}": row_to_tensors(row, setting.layout, transport) for i, row in enumerate(sent)}
        notes["personal"] = offer.personal.shape[1]
        # An update is against what arrives, which half precision has rounded.
        own = tensors_to_row(models["sent-0"], setting.layout)
    expected = Expected(
        memory.round,
        token,
        setting.layout,
        transport,
        composition.top,
        {} if first else aggregator.expected(memory.round),
        0 if first else offer.shared.shape[0],
        aggregator.travels,
        setting.beside,
        own,
        len(memory.server.rows) if aggregator.grouping.clients_choose and not first else 0,
        memory.samples[client],
    )
    return Parcel("train", memory.round, models, {}, beside, notes), expected


def final_models(setting: ServerContext, memory: ServerState) -> dict[int, Parcel]:
    """The model each client ends with.

    Raises:
        FedwcaError: it is another client's own, and that is refused.
    """
    aggregator, rows = setting.method.aggregator, memory.server.rows
    here = [client for client, number in enumerate(memory.samples) if number]
    if not aggregator.travels:
        # Each has gone on from its own model, and ends with it.
        return {client: Parcel("final", memory.round) for client in here}
    weights = aggregator.deliver(memory.server.state, len(rows))
    parcels = {}
    for client in here:
        if float((weights[client] @ memory.shares)[client]) < 1 - 1e-9:
            refuse_single(setting, memory, client, weights[client][None])
        model = row_to_tensors(setting.mixed(weights[client], rows), setting.layout, setting.composition.transport)
        parcels[client] = Parcel("final", memory.round, {"sent-0": model})
    return parcels
