"""What a deployment's server sends in a round: an offer to all clients, and a task for each."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedwca._version import __version__
from fedwca.core.grouping import TRUSTED
from fedwca.core.messages import Offer
from fedwca.deploy.read_answers import ExpectedAnswer
from fedwca.deploy.server_context import ServerContext
from fedwca.deploy.session_state import SessionState
from fedwca.deploy.wire_messages import VERSION, Parcel, row_to_tensors, tensors_to_row
from fedwca.federated.collected_values import COLLECTED, pool_collected
from fedwca.federated.server import (
    expect_uploads,
    offer_models,
    offer_source,
)


@dataclass(frozen=True)
class RoundOffer:
    """What the server sends in a round to all clients together."""

    models: Offer
    shared: Sequence[Mapping[str, Tensor]]
    """The offer's shared models as named tensors in transport precision, the same for all clients."""
    pooled: Mapping[str, Tensor]
    """Tensors beside models that all clients are sent; see `pool_collected`."""
    choices: Sequence[Tensor]
    """The models ``[P]`` that clients choose from, as they arrive; empty if clients do not choose."""
    mixed: dict[bytes, tuple[Sequence[Mapping[str, Tensor]], Tensor]] = field(default_factory=dict)
    """Personal models as named tensors, and the first as it arrives ``[P]``, by their weights: clients of one cluster
    are sent the same ones, which are held once."""


def make_offer(context: ServerContext, state: SessionState) -> RoundOffer:
    """Return what is sent in the next round.

    If the method sends no models, clients continue from the source model or from their own.
    """
    method, server, clients = context.method, state.server, context.rules.clients
    if method.aggregator.sends_models:
        models = offer_models(state.round, server, method.aggregator, clients, context.layout.trained)
    else:
        models = offer_source(clients)
    transport = context.composition.transport
    shared = [row_to_tensors(row, context.layout, transport) for row in context.mix(models.shared, server.rows)]
    # Free numbers have rows of zeros, which must not be pooled as if a client had uploaded them.
    answered = torch.tensor([bool(number) for number in state.samples])
    collected = {name: value[answered] for name, value in server.state.items() if name.startswith(COLLECTED)}
    selectable = shared if method.aggregator.grouping.clients_choose else []
    choices = [tensors_to_row(model, context.layout) for model in selectable]
    return RoundOffer(models, shared, pool_collected(method.objectives, collected), choices)


def needs_cluster(context: ServerContext, state: SessionState, client: int) -> bool:
    """Return whether a client joins after the clusters were made, and must be assigned to one first."""
    return bool(state.round and not state.samples[client] and context.method.aggregator.grouping.needs_clusterer)


def make_task(
    context: ServerContext, state: SessionState, offer: RoundOffer, client: int, first: bool, informed: bool
) -> tuple[Parcel, ExpectedAnswer]:
    """Return one client's task, and what its answer must look like.

    Args:
        context: the federation's constants.
        state: the session's state.
        offer: this round's offer.
        client: the client's number.
        first: the client trains from the source model; no other model is sent.
        informed: the client has the source model and the composition; else they are sent.
    """
    composition, aggregator, server = context.composition, context.method.aggregator, state.server
    transport, token = composition.transport, secrets.token_hex(8)
    # 0 samples: what it trained so far did not arrive, or was of another federation.
    samples = state.samples[client]
    notes: dict[str, int | float | str] = {"token": token, "first": int(first), "samples": samples, "personal": 1}
    models: dict[str, Mapping[str, Tensor]] = {}
    if not informed:
        models["source"] = context.source
        notes |= describe_session(context, client)
    starts: Sequence[Tensor] = [server.source]
    if not first and aggregator.sends_models:
        personal = offer.models.personal[client]
        if (key := personal.numpy().tobytes()) not in offer.mixed:
            made = [row_to_tensors(row, context.layout, transport) for row in context.mix(personal, server.rows)]
            # Updates are measured from the model that arrives, which half precision has rounded.
            offer.mixed[key] = made, tensors_to_row(made[0] if made else offer.shared[0], context.layout)
        personal_models, arrived = offer.mixed[key]
        models |= {f"sent-{i}": tensors for i, tensors in enumerate((*personal_models, *offer.shared))}
        notes["personal"] = len(personal)
        starts = offer.choices or [arrived]
    collected = {**context.collected, **(context.moments if first else {})}
    upload = expect_uploads(0 if first else state.round, server, aggregator, offer.models, collected)
    selects = context.method.pseudo_labeler.selects_clients
    if knows_trust := selects and bool(samples):
        notes["trusted"] = float(server.state[TRUSTED][client])
    expected = ExpectedAnswer(
        round=state.round,
        token=token,
        layout=context.layout,
        transport=transport,
        share=composition.top,
        sends_models=aggregator.sends_models,
        starts=starts,
        upload=upload,
        samples=samples,
        asks_trust=selects and not knows_trust,
    )
    # As in round 0, whose training a late client repeats, there is nothing pooled for it.
    return Parcel("train", state.round, models, {}, {} if first else offer.pooled, notes), expected


def describe_session(context: ServerContext, client: int) -> dict[str, int | float | str]:
    """Return the notes that a client is sent once with the source model: composition, its number, and the version."""
    return {"composition": context.composition.model_dump_json(), "client": client, VERSION: __version__}
