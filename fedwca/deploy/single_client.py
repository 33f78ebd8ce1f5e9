"""No client's model is handed on alone: a mean takes two."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from fedwca.deploy.context import ServerContext
from fedwca.deploy.robust import is_single
from fedwca.deploy.rules import ServerState
from fedwca.errors import FedwcaError

log = logging.getLogger("fedwca.deploy")


def refuse_single(setting: ServerContext, memory: ServerState, client: int, sent: Tensor) -> None:
    """Refuse, or warn of, sending models that are one client's own.

    Args:
        setting: the federation's.
        memory: what the server holds.
        client: who would be sent them.
        sent: as mixtures of the server's rows ``[..., R]``.

    Raises:
        FedwcaError: one is, and that is refused.
    """
    if not bool(is_single(sent @ memory.shares).any()):
        return
    sentence = f"round {memory.round}: a model sent to client {client} is a single client's own"
    if setting.rules.alone == "refuse":
        raise FedwcaError(f"{sentence}; let clusters be larger, or allow it with alone = 'warn'")
    log.warning("%s", sentence)


def drop_single_means(setting: ServerContext, memory: ServerState, weights: Tensor) -> Tensor:
    """`gather`'s weights ``[C, R+K]``, where a mean of one client is left undone: its row stays as it is."""
    kept = len(memory.server.rows)
    alone = is_single(weights[:, kept:])
    if setting.method.aggregator.grouping.keeps_models_apart or not bool(alone.any()):
        return weights
    clusters = alone.nonzero()[:, 0].tolist()
    sentence = f"round {memory.round}: of clusters {clusters} a single client was heard"
    if setting.rules.alone == "warn":
        log.warning("%s; its model is handed on", sentence)
        return weights
    if not memory.round:
        raise FedwcaError(f"{sentence}; take another clusterer or more clients, or allow it with alone = 'warn'")
    log.warning("%s; the cluster keeps its model", sentence)
    weights = weights.clone()
    weights[alone] = torch.eye(kept, weights.shape[1], dtype=weights.dtype)[alone]
    return weights
