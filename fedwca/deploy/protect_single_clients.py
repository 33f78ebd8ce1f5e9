"""No client's model is handed on alone: a mean takes two."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from fedwca.deploy.server_context import ServerContext
from fedwca.deploy.session_state import SessionState
from fedwca.errors import FedwcaError

log = logging.getLogger("fedwca.deploy")


def mix_shares(weights: Tensor, shares: Tensor) -> Tensor:
    """Share of each client's last upload in the next rows ``[C, K]``, from `gather`'s ``[C, R+K]`` and ``[R, K]``."""
    kept = len(shares)
    return weights[:, :kept] @ shares + weights[:, kept:]


def is_single(shares: Tensor) -> Tensor:
    """Rows ``[..., K]`` made of a single client's upload: handing one on hands on that client's model."""
    return (shares > 1e-9).sum(-1) == 1


def check_not_single_model(
    context: ServerContext, state: SessionState, sent: Tensor, what: str, receiver: int | None = None
) -> None:
    """Refuse, or warn of, handing on models that are one client's own.

    Args:
        context: the federation's.
        state: what the session remembers.
        sent: the models, as mixtures of the server's rows ``[..., R]``.
        what: they are, for messages.
        receiver: a client they are sent to, who learns nothing by its own.

    Raises:
        FedwcaError: one is, and that is refused.
    """
    shares = sent @ state.shares
    others = torch.tensor(True) if receiver is None else shares[..., receiver] <= 1e-9
    if not bool((is_single(shares) & others).any()):
        return
    sentence = f"{what} is a single client's own"
    if context.rules.alone == "refuse":
        raise FedwcaError(f"{sentence}; let clusters be larger, or allow it with alone = 'warn'")
    log.warning("%s", sentence)


def drop_single_means(
    context: ServerContext, state: SessionState, weights: Tensor, labels: Tensor, gated: bool
) -> Tensor:
    """`gather`'s weights ``[C, R+K]``, where a mean of one client is left undone: its row stays as it is.

    Args:
        context: the federation's.
        state: what the session remembers.
        weights: of all rows.
        labels: cluster of each client ``[K]``.
        gated: whether a mean may be of few because others of the cluster are not trusted.

    Raises:
        FedwcaError: in round 0, since clusters stay as small as they are then, unless gated.
    """
    kept = len(state.server.rows)
    alone = is_single(weights[:, kept:])
    if context.method.aggregator.grouping.keeps_models_apart or not bool(alone.any()):
        return weights
    clusters = alone[: int(labels.max()) + 1].nonzero()[:, 0].tolist()  # behind their models there may be others
    sentence = f"round {state.round}: of clusters {clusters} a single client was heard"
    if context.rules.alone == "warn":
        log.warning("%s; its model is handed on", sentence)
        return weights
    if not state.round and not gated:
        raise FedwcaError(f"{sentence}; take another clusterer or more clients, or allow it with alone = 'warn'")
    log.warning("%s; the cluster keeps its model", sentence)
    weights = weights.clone()
    # Before round 0 the server has one model, the source's, for all clusters; after it one for each, and more behind.
    keep = torch.eye(kept, weights.shape[1], dtype=weights.dtype)[torch.arange(len(weights)) % kept]
    weights[alone] = keep[alone]
    return weights
