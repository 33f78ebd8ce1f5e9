"""Defences against uploads that are in order and lie all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout
from fedwca.functional import moment_shift

Robust = Literal["mean", "median", "trimmed"]


def measure_statistics_move(model: Tensor, sent: Tensor, layout: Layout) -> float:
    """How far BatchNorm's statistics of a model ``[P]`` are from those it began with, per statistic.

    Returns:
        Root mean square of shifts of means and of log deviations, in the layers' own deviations; 0 without BatchNorm.
    """
    shifts = [
        moment_shift(mean.of(model), variance.of(model), mean.of(sent), variance.of(sent))
        for mean, variance in layout.norms
    ]
    return float(torch.cat(shifts).square().mean().sqrt()) if shifts else 0.0


def norm_outliers(moves: Mapping[int, float], factor: float, least: float = 0.0) -> dict[int, float]:
    """Clients whose model moved more than ``factor`` times the median of this round, with their share of that bound.

    The median is of models that moved: those of clients that do not train, as untrusted ones, do not tell how far
    training moves a model.

    Args:
        moves: by client.
        factor: above 1.
        least: what the median is taken for where it is less.

    >>> norm_outliers({0: 1.0, 1: 1.0, 2: 12.0}, 3.0)
    {2: 4.0}
    >>> norm_outliers({0: 0.0, 1: 0.0, 2: 1.0}, 3.0)
    {}
    """
    trained = [moved for moved in moves.values() if moved > 0]
    if len(moves) < 3 or not trained:
        return {}
    bound = factor * max(least, float(torch.tensor(trained, dtype=torch.float64).median()))
    return {client: moved / bound for client, moved in moves.items() if moved > bound}


def robust_mean(rows: Tensor, how: Robust) -> Tensor:
    """A robust mean ``[N, P] -> [P]``: by coordinate the median, or the mean without the outer quarter on each side.

    Of three rows or more at least one on each side is left out.

    >>> robust_mean(torch.tensor([[1.0], [2.0], [3.0], [90.0]]), "trimmed")
    tensor([2.5000])
    """
    ordered = rows.sort(0).values
    n = len(ordered)
    cut = (n - 1) // 2 if how == "median" else min(max(1, n // 4), (n - 1) // 2)
    return ordered[cut : n - cut].mean(0)


def robust_means(means: Tensor, weights: Tensor, bank: Tensor, how: Robust) -> Tensor:
    """Means of clusters ``[C, P]``, with those of three clients or more made robust.

    Args:
        means: as the weights give them.
        weights: ``[C, R+K]``, of the server's rows before and of the clients' models.
        bank: the clients' models ``[K, P]``.
        how: mean: they stay as they are.
    """
    if how == "mean":
        return means
    robust, kept = means.clone(), weights.shape[1] - len(bank)
    for row, weight in enumerate(weights):
        members = weight[kept:] > 0
        if int(members.sum()) > 2 and not bool(weight[:kept].any()):
            robust[row] = robust_mean(bank[members], how)
    return robust
