"""Defences against uploads that pass all checks but are manipulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout
from fedwca.functional import moment_shift

Robust = Literal["mean", "median", "trimmed"]
FEWEST_MOVES = 3
"""Models that can be compared in how far they moved."""


def measure_update(model: Tensor, sent: Tensor, layout: Layout) -> float:
    """Return the L2 norm of a model's update: its parameters ``[P]`` minus those of the model that was sent ``[P]``."""
    # Added up in float64: in float32 the squares of a large model's values add up to too little.
    return float(torch.linalg.vector_norm((model - sent)[: layout.trained], dtype=torch.float64))


def measure_statistics_shift(model: Tensor, sent: Tensor, layout: Layout) -> float:
    """Return how far the BatchNorm statistics of a model ``[P]`` moved from those of the model that was sent ``[P]``.

    Returns:
        Root mean square over all statistics: shifts of means in units of the layer's standard deviation, and
        differences of log standard deviations; 0 without BatchNorm.
    """
    shifts = [
        moment_shift(mean.of(model), variance.of(model), mean.of(sent), variance.of(sent))
        for mean, variance in layout.norms
    ]
    return float(torch.cat(shifts).square().mean().sqrt()) if shifts else 0.0


def norm_outliers(moves: Mapping[int, float], factor: float, least: float = 0.0) -> dict[int, float]:
    """Return the clients whose model moved more than ``factor`` times the round's median, and their move / bound.

    The median is over moves above 0, of an even number the lower one: clients that do not train, such as untrusted
    ones, do not tell how far training moves a model. With fewer than 3 clients there are no outliers, and without a
    lower limit with fewer than 3 such moves: of two, the smaller one would bound the other.

    Args:
        moves: by client, how far its model moved.
        factor: bound in units of the median, above 1.
        least: lower limit of the median.

    >>> norm_outliers({0: 1.0, 1: 1.0, 2: 12.0}, 3.0)
    {2: 4.0}
    >>> norm_outliers({0: 0.0, 1: 0.0, 2: 1.0}, 3.0)
    {}
    """
    nonzero = [move for move in moves.values() if move > 0]
    if len(moves) < FEWEST_MOVES or len(nonzero) < (1 if least else FEWEST_MOVES):
        return {}
    bound = factor * max(least, float(torch.tensor(nonzero, dtype=torch.float64).median()))
    return {client: move / bound for client, move in moves.items() if move > bound}


def robust_mean(rows: Tensor, kind: Robust) -> Tensor:
    """Return a robust mean ``[N, P] -> [P]``: per coordinate the median, or the mean without a quarter on each side.

    With three rows or more, at least one value on each side is left out.

    >>> robust_mean(torch.tensor([[1.0], [2.0], [3.0], [90.0]]), "trimmed")
    tensor([2.5000])
    """
    ordered = rows.sort(0).values
    n = len(ordered)
    cut = (n - 1) // 2 if kind == "median" else min(max(1, n // 4), (n - 1) // 2)
    return ordered[cut : n - cut].mean(0)


def robust_means(means: Tensor, weights: Tensor, bank: Tensor, kind: Robust) -> Tensor:
    """Return the cluster means ``[C, P]`` with those of three clients or more replaced by robust means.

    A mean that also weighs a previous row of the server is not replaced.

    Args:
        means: weighted means ``[C, P]``.
        weights: ``[C, R+K]``, weights of the server's previous rows and of the clients' models.
        bank: the clients' models ``[K, P]``.
        kind: which robust mean; ``mean``: the means are returned as they are.
    """
    if kind == "mean":
        return means
    robust, server_rows = means.clone(), weights.shape[1] - len(bank)
    for row, weight in enumerate(weights):
        members = weight[server_rows:] > 0
        if int(members.sum()) > 2 and not bool(weight[:server_rows].any()):
            robust[row] = robust_mean(bank[members], kind)
    return robust
