"""Searches for nearest rows: rounded distances give candidates, and differences in float64 decide between them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm

Backend = Literal["auto", "torch", "faiss", "hnsw"]
Metric = Literal["cosine", "euclidean"]

_CANDIDATES = 8
_SLACK = {torch.float64: 1e-12, torch.float32: 1e-5}  # relative rounding error of a squared distance, rounded up
_NUMBERS = 2**23  # entries of a temporary matrix


def naive_neighbours(rows: Tensor, metric: Metric, backend: Backend) -> Tensor:
    """Find the nearest other row of each row ``[K]``, from plain float32 distances."""
    indices = torch.arange(len(rows), device=rows.device)
    if backend != "torch":
        candidates, _ = search_candidates(rows, backend, metric)
        valid = (candidates != indices[:, None]) & (candidates >= 0)
        return candidates.gather(1, valid.int().argmax(1, keepdim=True))[:, 0]
    half_squares = rows.square().sum(1) / 2 if metric == "euclidean" else rows.new_zeros(())
    nearest = []
    for chunk in torch.split(indices, max(1, _NUMBERS // len(rows))):
        scores = half_squares - rows[chunk] @ rows.mT
        nearest.append(scores.masked_fill(chunk[:, None] == indices, torch.inf).argmin(1))
    return torch.cat(nearest)


def rounding_tolerance(length: Tensor, best: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound the rounding error of |a|²+|b|²-2ab for any b that may be as near to a as the best one."""
    return _SLACK[dtype] * (length + best.clamp_min(0).sqrt()).square()


def exact_neighbours(rows: Tensor, centred: Tensor, queries: Tensor, zero: float) -> Tensor:
    """Find the nearest other row of each query ``[Q]``: matrix products give candidates, differences decide.

    Rows that are nearer than ``zero`` count as equal.
    """
    lengths = vector_norm(centred, dim=1)
    indices = torch.arange(len(rows), device=rows.device)
    nearest = []
    for chunk in torch.split(queries, max(1, _NUMBERS // len(rows))):
        squares = lengths[chunk, None].square() + lengths.square() - 2 * centred[chunk] @ centred.mT
        squares = squares.masked_fill(chunk[:, None] == indices, torch.inf)
        best = squares.amin(1)
        limit = best.clamp_min(zero * zero) + 2 * rounding_tolerance(lengths[chunk], best, torch.float64)
        i, j = (squares <= limit[:, None]).nonzero(as_tuple=True)
        nearest.append(decide_nearest(rows, chunk, i, j, zero)[0])
    return torch.cat(nearest)


def decide_nearest(rows: Tensor, queries: Tensor, i: Tensor, j: Tensor, zero: float) -> tuple[Tensor, Tensor]:
    """Choose among candidates j of the i-th queries: the nearest of each ``[Q]``, and its squared distance ``[Q]``."""
    step = max(1, _NUMBERS // max(1, rows.shape[1]))
    pairs = zip(torch.split(queries[i], step), torch.split(j, step), strict=True)
    distances = torch.cat([(rows[a] - rows[b]).square().sum(1) for a, b in pairs])
    distances = distances.masked_fill(distances <= zero * zero, 0)
    best = distances.new_full((len(queries),), torch.inf).scatter_reduce(0, i, distances, "amin")
    is_best = distances == best[i]
    start = torch.full_like(queries, len(rows))
    return start.scatter_reduce(0, i[is_best], j[is_best], "amin"), best


def search_candidates(vectors: Tensor, backend: Backend, metric: Metric) -> tuple[Tensor, Tensor]:
    """Search a few near rows of each row with faiss: indices ``[K, k]``, and the distance of the last one ``[K]``."""
    import faiss  # after torch, so that both share one thread pool

    device, data = vectors.device, vectors.cpu().contiguous().numpy()
    kind = faiss.METRIC_L2 if metric == "euclidean" else faiss.METRIC_INNER_PRODUCT
    threads = faiss.omp_get_max_threads()
    index: faiss.Index
    if backend == "hnsw":
        index = graph = faiss.IndexHNSWFlat(data.shape[1], 16, kind)
        graph.hnsw.efConstruction, graph.hnsw.efSearch = 80, 128
        faiss.omp_set_num_threads(1)  # several threads would add rows in varying order
    else:
        index = faiss.IndexFlat(data.shape[1], kind)
    try:
        index.add(data)
    finally:
        faiss.omp_set_num_threads(threads)
    distances, candidates = index.search(data, min(_CANDIDATES, len(data)))
    return torch.from_numpy(candidates).to(device), torch.from_numpy(distances[:, -1]).to(device).double()
