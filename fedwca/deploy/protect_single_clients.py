"""Prevents models made from a single client's upload from being sent to others: a mean needs two clients."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from fedwca.deploy.server_context import ServerContext
from fedwca.deploy.session_state import SessionState
from fedwca.errors import FedwcaError

log = logging.getLogger("fedwca.deploy")


def mix_shares(weights: Tensor, shares: Tensor) -> Tensor:
    """Return the share of each client's last upload in the next rows ``[C, K]``.

    Args:
        weights: `gather`'s weights ``[C, R+K]``.
        shares: shares in the present rows ``[R, K]``.
    """
    server_rows = len(shares)
    return weights[:, :server_rows] @ shares + weights[:, server_rows:]


def is_single(shares: Tensor) -> Tensor:
    """Return ``[...]`` bool: which rows of shares ``[..., K]`` come from one client alone, whose model that then is."""
    return (shares > 1e-9).sum(-1) == 1


def clients_stay_apart(context: ServerContext) -> bool:
    """Return whether models of single clients are meant: the aggregator keeps them apart, or there is one client."""
    return context.method.aggregator.grouping.keeps_models_apart or context.rules.clients == 1


def check_not_single_model(
    context: ServerContext, state: SessionState, sent: Tensor, subject: str, receiver: int | None = None
) -> None:
    """Refuse, or warn about, sending or exporting models that were made from a single client's upload.

    Args:
        context: the federation's constants.
        state: the session's state.
        sent: the models, as mixtures of the server's rows ``[..., R]``.
        subject: what the models are, for messages.
        receiver: the client they are sent to, which may get its own model; None: no client.

    Raises:
        FedwcaError: there is such a model, and rule ``alone`` is ``refuse``.
    """
    shares = sent @ state.shares
    not_own = torch.tensor(True) if receiver is None else shares[..., receiver] <= 1e-9
    if not bool((is_single(shares) & not_own).any()):
        return
    sentence = f"{subject} is a single client's own"
    if context.rules.alone == "refuse":
        raise FedwcaError(f"{sentence}; let clusters be larger, or allow it with alone = 'warn'")
    log.warning("%s", sentence)


def drop_single_means(
    context: ServerContext, state: SessionState, weights: Tensor, labels: Tensor, gated: bool
) -> Tensor:
    """Return `gather`'s weights ``[C, R+K]`` in which a row that would be the mean of one client stays as it was.

    Args:
        context: the federation's constants.
        state: the session's state.
        weights: `gather`'s weights of all rows ``[C, R+K]``.
        labels: cluster of each client ``[K]``.
        gated: whether clients are left out of means because their labels are not trusted.

    Raises:
        FedwcaError: in round 0 a cluster has a single client; clusters do not grow later. Not raised if gated, or if
            rule ``alone`` is ``warn``.
    """
    server_rows = len(state.server.rows)
    single = is_single(weights[:, server_rows:])
    if clients_stay_apart(context) or not bool(single.any()):
        return weights
    clusters = single[: int(labels.max()) + 1].nonzero()[:, 0].tolist()  # rows after the clusters' may be other models
    what = "a single client's model counts" if gated else "a single client was heard"
    sentence = f"round {state.round}: of clusters {clusters} {what}"
    if context.rules.alone == "warn":
        log.warning("%s; its model is handed on", sentence)
        return weights
    if not state.round and not gated:
        raise FedwcaError(f"{sentence}; take another clusterer or more clients, or allow it with alone = 'warn'")
    log.warning("%s; the cluster keeps its model", sentence)
    weights = weights.clone()
    # In round 0 the server has one row, the source model, for all clusters; later a row for each, then perhaps others.
    keep = torch.eye(server_rows, weights.shape[1], dtype=weights.dtype)[torch.arange(len(weights)) % server_rows]
    weights[single] = keep[single]
    return weights
