"""First neighbours of vectors, reliable also where these differ only in the last digits, and connected components.

Models of clients that started from one source are nearly collinear: 1-cos falls to 1e-9, while float32 cosines are
multiples of 6e-8. So rows are normalised in float64 and their mean is subtracted, which changes no distance but keeps
the digits of differences. A search then only gives candidates, with a tolerance above its rounding error; the nearest
is found from differences in float64.

Never search in a forked process: OpenMP's threads do not survive a fork, and the first parallel loop waits for them
forever. Where that would happen, an error is raised instead.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm

from fedwca.errors import DataError, UsageError
from fedwca.functional._nearest import (
    Backend,
    Metric,
    decide_nearest,
    exact_neighbours,
    naive_neighbours,
    rounding_tolerance,
    search_candidates,
)

Precision = Literal["float64", "float32"]
EXACT = 10_000
"""Largest number of rows that ``auto`` searches exactly on a CPU."""

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class VectorError(DataError, ValueError):
    """A vector cannot be compared with others: it is not finite, or has no direction."""


def first_neighbours(
    x: Tensor, *, backend: Backend = "auto", precision: Precision = "float64", metric: Metric = "cosine"
) -> Tensor:
    """Find the nearest other row of each row; ties go to the lowest index.

    Source: FedWCA, sec. 4.1 (kappa_k); FINCH (Sarfraz et al., CVPR 2019).

    Args:
        x: ``[K, P]``, K at least 1.
        backend: ``torch`` and ``faiss`` are exact; ``hnsw`` is faiss' approximate graph index. ``auto``: torch on a
            GPU and on macOS; else faiss up to 10,000 rows and hnsw above.
        precision: ``float32`` compares the rows as they are in float32, which is rounding noise for nearly collinear
            rows; it exists to study that.
        metric: distance by which rows are near.

    Returns:
        ``[K]`` int64; never the row itself, unless it is the only one.

    Raises:
        VectorError: a row is not finite, or is zero where ``metric`` is cosine; the message names the row.
        UsageError: ``x`` has no rows or not two axes, an option is unknown, or the process was forked and would use
            several threads.

    >>> first_neighbours(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2], [0.1, 1.0]]))
    tensor([2, 3, 0, 1])
    """
    _check_options(backend, precision, metric)
    rows = _comparable(x, metric)
    if len(rows) == 1:
        return torch.zeros(1, dtype=torch.long, device=x.device)
    if backend == "auto":
        # The wheels of torch and faiss for macOS each bring an OpenMP, and the second one ends the process.
        in_torch = rows.is_cuda or sys.platform == "darwin"
        backend = "torch" if in_torch else "faiss" if len(rows) <= EXACT else "hnsw"
    if precision == "float32":
        return naive_neighbours(rows.float(), metric, backend).to(x.device)
    zero = 8 * torch.finfo(torch.float64).eps if metric == "cosine" else 0.0  # two rows as near as this are equal
    if bool((vector_norm(rows - rows[0], dim=1) <= zero).all()):
        return (torch.arange(len(rows), device=x.device) == 0).long()
    centred = rows - rows.mean(0)
    scale = 2.0 ** -max(math.frexp(float(centred.abs().max()))[1], -1000)  # a power of two: rounds nothing
    rows, centred, zero = rows.mul_(scale), centred.mul_(scale), zero * scale
    indices = torch.arange(len(rows), device=rows.device)
    if backend == "torch":
        return exact_neighbours(rows, centred, indices, zero).to(x.device)
    candidates, farthest = search_candidates(centred.float(), backend, metric="euclidean")
    candidates = candidates.masked_fill(candidates == indices[:, None], -1)
    i, column = (candidates >= 0).nonzero(as_tuple=True)
    nearest, best = decide_nearest(rows, indices, i, candidates[i, column], zero)
    uncertain = best.isinf()
    if backend == "faiss" and candidates.shape[1] < len(rows):  # may an unseen row be nearer than its rounded distance?
        uncertain |= farthest <= best + rounding_tolerance(vector_norm(centred, dim=1), best, torch.float32)
    queries = uncertain.nonzero()[:, 0]
    if len(queries):
        nearest[queries] = exact_neighbours(rows, centred, queries, zero)
    return nearest.to(x.device)


def _check_options(backend: Backend, precision: Precision, metric: Metric) -> None:
    for option, value, choices in (
        ("backend", backend, ("auto", "torch", "faiss", "hnsw")),
        ("precision", precision, ("float64", "float32")),
        ("metric", metric, ("cosine", "euclidean")),
    ):
        if value not in choices:
            raise UsageError(f"no {option} '{value}'; there are {', '.join(choices)}")
    if _forked and torch.get_num_threads() > 1:
        raise UsageError(
            "neighbours cannot be searched in a forked process, where OpenMP waits forever; start it with "
            "multiprocessing's 'spawn', or call torch.set_num_threads(1) in it first"
        )


def _comparable(x: Tensor, metric: Metric) -> Tensor:
    """Check rows and copy them to float64, for cosine scaled to unit length."""
    if not isinstance(x, Tensor):
        raise UsageError(f"expected vectors as a tensor [K, P], got {type(x).__name__}")
    if x.ndim != 2 or not x.numel():
        raise UsageError(f"expected vectors as [K, P] with at least one row and column, got the shape {list(x.shape)}")
    # One copy, changed in place from here on: at 100,000 rows each further copy is hundreds of MB.
    rows = (x.cpu() if x.device.type == "mps" else x).detach().to(torch.float64, copy=True)
    finite = rows.isfinite().all(1)
    if not bool(finite.all()):
        raise VectorError(f"row {int((~finite).nonzero()[0])} (counted from 0) holds values that are not finite")
    if metric == "euclidean":
        return rows
    largest = rows.abs().amax(1, keepdim=True)
    if not bool((largest > 0).all()):
        raise VectorError(f"row {int((largest[:, 0] == 0).nonzero()[0])} (counted from 0) is zero: it has no direction")
    rows.div_(largest)
    length: Tensor = vector_norm(rows, dim=1, keepdim=True)
    return rows.div_(length)


def connected_components(neighbours: Tensor) -> Tensor:
    """Label the connected components of the graph in which each row points to one neighbour, by pointer doubling.

    Source: FINCH, eq. 1: rows that share a first neighbour are connected through it, so this is the first partition.

    Args:
        neighbours: ``[K]`` int64 in 0…K-1; a row may point to itself.

    Returns:
        ``[K]`` int64, without gaps, numbered by first appearance.

    Raises:
        UsageError: a neighbour is out of range.

    >>> connected_components(torch.tensor([3, 2, 1, 0, 2]))
    tensor([0, 1, 1, 0, 1])
    """
    count = len(neighbours)
    if bool(((neighbours < 0) | (neighbours >= count)).any()):
        raise UsageError(f"neighbours must be row numbers from 0 to {count - 1}")
    indices = torch.arange(count, device=neighbours.device)
    least, end = indices, neighbours
    for _ in range(count.bit_length() + 1):  # end: 2ⁿ steps on; least: smallest row among the first 2ⁿ
        least, end = torch.minimum(least, least[end]), end[end]
    root = least[end]  # every end lies on its component's cycle, and least is the smallest row of that cycle
    first = torch.full_like(neighbours, count).scatter_reduce(0, root, indices, "amin")[root]
    return ((first == indices).cumsum(0) - 1)[first]
