"""Values that objectives collect at clients: declared, remembered by the server, and pooled for all clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedwca.core.component_answers import check_mapping, check_tensors, join_named, only_reads
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Bounded, State
from fedwca.errors import FedwcaError
from fedwca.federated.upload_checks import Upload

COLLECTED = "collected."
"""Prefix in a server's state of what objectives collected and clients uploaded last."""


def declare_collected(objectives: Sequence[Objective], classes: int, features: int) -> dict[str, Bounded]:
    """What objectives declare that they collect, by ``<objective>.<name>``, for M classes and q features."""
    return {
        f"{objective.name}.{name}": bounded
        for objective in objectives
        for name, bounded in check_mapping(
            objective.upload_bounds(classes, features),
            Bounded,
            "Bounded",
            f"objective {objective.name!r}: upload_bounds",
        ).items()
    }


def remember_collected(state: State, uploads: Mapping[int, Upload], clients: int) -> dict[str, Tensor]:
    """What each client collected and uploaded last ``[K, …]``, as entries of a state; zeros where it never did.

    Args:
        state: the server's, before.
        uploads: by client.
        clients: K.

    Raises:
        FedwcaError: values are not finite, or two clients' have different names or shapes.
    """
    entries: dict[str, Tensor] = {}
    first, reference = next((client, upload.collected) for client, upload in uploads.items())
    for client, upload in uploads.items():
        for name in sorted(upload.collected.keys() | reference.keys()):
            value, expected = upload.collected.get(name), reference.get(name)
            if value is None or expected is None or value.shape != expected.shape:
                shapes = [None if v is None else tuple(v.shape) for v in (value, expected)]
                raise FedwcaError(f"client {client} uploaded {name} of shape {shapes[0]}, client {first} {shapes[1]}")
            if not bool(torch.isfinite(value).all()):
                raise FedwcaError(f"client {client} uploaded {name} with values that are not finite")
            key = COLLECTED + name
            if key not in entries:
                entries[key] = state[key].clone() if key in state else value.new_zeros(clients, *value.shape)
            entries[key][client] = value
    return entries


def pool_collected(objectives: Sequence[Objective], state: State) -> dict[str, Tensor]:
    """What every client is sent besides models: each objective's pool of what clients uploaded last.

    Raises:
        FedwcaError: two objectives give a value of one name, or one changes what was uploaded.
    """
    shared: dict[str, Tensor] = {}
    for objective in objectives:
        prefix = f"{COLLECTED}{objective.name}."
        uploaded = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        if uploaded:
            part = f"objective {objective.name!r}: pool"
            with only_reads(part, uploaded):
                pooled = check_tensors(objective.pool(uploaded), part)
            shared = join_named(shared, pooled, part)
    return shared
