"""Mixing weights: every model that a client uses is a mixture, given by a row of weights that sums to 1."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import class_columns


def tempered_softmax(scores: Tensor, temperature: float) -> Tensor:
    """Turn scores into weights by a softmax with a temperature, in float64.

    Source: FedWCA, eq. 1 (alpha from I, temperature T_a) and eq. 3 (beta from SND, temperature T_b).

    Args:
        scores: ``[..., C]``, finite.
        temperature: above 0, in the unit of the scores; towards 0 the largest takes all, towards infinity all are
            equal.

    Returns:
        ``[..., C]`` float64, at least 0, sum 1 over the last axis.

    Raises:
        UsageError: the temperature is not positive.

    >>> tempered_softmax(torch.tensor([0.0, 0.6931472]), 1.0)  # 1 to 2
    tensor([0.3333, 0.6667], dtype=torch.float64)
    """
    if not temperature > 0:
        raise UsageError(f"the temperature must be above 0, not {temperature}")
    scores = scores.double()
    return ((scores - scores.amax(-1, keepdim=True)) / temperature).softmax(-1)


def cluster_means(
    labels: Tensor, clusters: int, weights: Tensor | None = None, present: Tensor | None = None
) -> Tensor:
    """Compute the weights of the clients in the mean of each cluster.

    Source: FedWCA, Algorithm 1, lines 9 and 18 (uniform); FedAvg weighs by the number of samples.

    Args:
        labels: ``[K]`` int64, cluster of each client.
        clusters: C.
        weights: ``[K]``, at least 0; None weighs all equally.
        present: ``[K]`` bool, clients that take part; None: all of them.

    Returns:
        ``[C, K]`` float64, at least 0; each row sums to 1, except a zero row for a cluster in which no present client
        has a weight.

    >>> cluster_means(torch.tensor([0, 0, 1]), 3, torch.tensor([3.0, 1.0, 5.0]))
    tensor([[0.7500, 0.2500, 0.0000],
            [0.0000, 0.0000, 1.0000],
            [0.0000, 0.0000, 0.0000]], dtype=torch.float64)
    """
    share = torch.ones_like(labels, dtype=torch.float64) if weights is None else weights.double()
    if present is not None:
        share = share.masked_fill(present == 0, 0)
    members = class_columns(labels, clusters).mT * share
    total = members.sum(1, keepdim=True)
    return members / torch.where(total > 0, total, 1)


def soft_cluster_weights(
    alpha: Tensor,
    beta: Tensor,
    labels: Tensor,
    direction: Literal["column", "row"] = "column",
    present: Tensor | None = None,
) -> Tensor:
    """Compute the weights of the cluster models in each soft cluster model.

    With R[c, c'] the mean of alpha over the members of c, and B that of beta, the soft model of c is
    B0·f_c + B1·Σ A[c'→c] f_c'. ``column`` takes A[c'→c] = R[c', c] / Σ R[·, c]: each cluster contributes in proportion
    to the weight that it gives c's model (the sum in the text of eq. 2); where none gives any (sum below 1e-6), f_c
    takes the place of the sum. ``row`` takes A[c'→c] = R[c, c']: the weights that c itself gives (line 19's mean as it
    is; line 20 sums over the other index). If no client of a cluster reports, the cluster keeps its own
    model, and its clients' weights do not count.

    Source: FedWCA, eq. 2, and Algorithm 1, lines 19-20.

    Args:
        alpha: ``[K, C]``, rows sum to 1; rows of absent clients are not read.
        beta: ``[K, 2]``, rows sum to 1; (own model, mixed model).
        labels: ``[K]`` int64 in 0…C-1, cluster of each client.
        direction: reading of A.
        present: ``[K]`` bool, clients that reported; None: all of them.

    Returns:
        ``[C, C]`` float64; row c holds the weights of the cluster models in soft model c; each row sums to 1.

    Raises:
        UsageError: there is no such direction, or shapes do not fit.

    >>> alpha = torch.tensor([[0.8, 0.2], [0.4, 0.6]])
    >>> soft_cluster_weights(alpha, torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.tensor([0, 1]))
    tensor([[0.8333, 0.1667],
            [0.1250, 0.8750]], dtype=torch.float64)
    """
    if direction not in ("column", "row"):
        raise UsageError(f"no direction '{direction}'; there are 'column' and 'row'")
    if alpha.ndim != 2 or beta.shape != (len(alpha), 2) or labels.shape != alpha.shape[:1]:
        shapes = [list(value.shape) for value in (alpha, beta, labels)]
        raise UsageError("expected alpha [K, C], beta [K, 2] and labels [K], got {}, {} and {}".format(*shapes))
    clusters = alpha.shape[1]
    identity = torch.eye(clusters, dtype=torch.float64, device=alpha.device)
    alpha, beta = alpha.double(), beta.double()
    if present is not None:
        absent = (present == 0)[:, None]
        alpha, beta = alpha.masked_fill(absent, 0), beta.masked_fill(absent, 0)
    members = cluster_means(labels, clusters, None, present)
    reporting = members.sum(1, keepdim=True) > 0
    mean_alpha, mean_beta = members @ alpha, members @ beta
    if direction == "column":
        total = mean_alpha.sum(0)[:, None]
        mixed = torch.where(total < 1e-6, identity, mean_alpha.mT / torch.where(total < 1e-6, 1, total))
    else:
        mixed = mean_alpha
    return torch.where(reporting, mean_beta[:, :1] * identity + mean_beta[:, 1:] * mixed, identity)


def blend_weights(own: Tensor, alpha: Tensor, beta: Tensor, soft: Tensor) -> Tensor:
    """Compute the weights v of the cluster models in each client's initial model: beta0·own + beta1·(alpha @ soft).

    Source: FedWCA, app. B.3, eq. 8.

    Args:
        own: ``[K, C]``, one-hot rows: the client's cluster.
        alpha: ``[K, C]``, rows sum to 1.
        beta: ``[K, 2]``, rows sum to 1.
        soft: ``[C, C]``, as `soft_cluster_weights` gives it.

    Returns:
        ``[K, C]`` float64; each row sums to 1.

    >>> alpha, beta = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.2, 0.8]])
    >>> blend_weights(torch.tensor([[1.0, 0.0]]), alpha, beta, torch.eye(2))  # 0.2 + 0.4, 0.4
    tensor([[0.6000, 0.4000]], dtype=torch.float64)
    """
    beta = beta.double()
    return beta[:, :1] * own.double() + beta[:, 1:] * (alpha.double() @ soft.double())
