"""Ways of finding near rows: each proposes candidates from rounded distances, and differences in float64 decide."""

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
    """Compare rows in float32 as they are."""
    everyone = torch.arange(len(rows), device=rows.device)
    if backend != "torch":
        found, _ = search_candidates(rows, backend, metric)
        other = (found != everyone[:, None]) & (found >= 0)
        return found.gather(1, other.int().argmax(1, keepdim=True))[:, 0]
    half = rows.square().sum(1) / 2 if metric == "euclidean" else rows.new_zeros(())
    picks = []
    for some in torch.split(everyone, max(1, _NUMBERS // len(rows))):
        scores = half - rows[some] @ rows.mT
        picks.append(scores.masked_fill(some[:, None] == everyone, torch.inf).argmin(1))
    return torch.cat(picks)


def rounding_tolerance(length: Tensor, best: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound the rounding error of |a|²+|b|²-2ab for any b that could be as near to a as the best one."""
    return _SLACK[dtype] * (length + best.clamp_min(0).sqrt()).square()


def exact_neighbours(rows: Tensor, centred: Tensor, queries: Tensor, zero: float) -> Tensor:
    """Find first neighbours of some rows with matrix products, decided by differences."""
    length = vector_norm(centred, dim=1)
    everyone = torch.arange(len(rows), device=rows.device)
    answers = []
    for some in torch.split(queries, max(1, _NUMBERS // len(rows))):
        squares = length[some, None].square() + length.square() - 2 * centred[some] @ centred.mT
        squares = squares.masked_fill(some[:, None] == everyone, torch.inf)
        best = squares.amin(1)
        limit = best + 2 * rounding_tolerance(length[some], best, torch.float64)
        i, j = (squares <= limit[:, None]).nonzero(as_tuple=True)
        answers.append(decide_nearest(rows, some, i, j, zero)[0])
    return torch.cat(answers)


def decide_nearest(rows: Tensor, queries: Tensor, i: Tensor, j: Tensor, zero: float) -> tuple[Tensor, Tensor]:
    """Decide among the candidates j for the i-th query: the nearest ``[Q]`` and its squared distance ``[Q]``."""
    step = max(1, _NUMBERS // max(1, rows.shape[1]))
    pairs = zip(torch.split(queries[i], step), torch.split(j, step), strict=True)
    distances = torch.cat([(rows[a] - rows[b]).square().sum(1) for a, b in pairs])
    distances = distances.masked_fill(distances <= zero * zero, 0)
    best = distances.new_full((len(queries),), torch.inf).scatter_reduce(0, i, distances, "amin")
    won = distances == best[i]
    start = torch.full_like(queries, len(rows))
    return start.scatter_reduce(0, i[won], j[won], "amin"), best


def search_candidates(vectors: Tensor, backend: Backend, metric: Metric) -> tuple[Tensor, Tensor]:
    """Ask faiss for a few near rows of each: indices ``[K, k]``, and the distance of the last ``[K]``."""
    import faiss  # after torch: then both share one thread pool

    device, data = vectors.device, vectors.cpu().contiguous().numpy()
    kind = faiss.METRIC_L2 if metric == "euclidean" else faiss.METRIC_INNER_PRODUCT
    threads = faiss.omp_get_max_threads()
    index: faiss.Index
    if backend == "hnsw":
        index = graph = faiss.IndexHNSWFlat(data.shape[1], 16, kind)
        graph.hnsw.efConstruction, graph.hnsw.efSearch = 80, 128
        faiss.omp_set_num_threads(1)  # several threads add in any order
    else:
        index = faiss.IndexFlat(data.shape[1], kind)
    try:
        index.add(data)
    finally:
        faiss.omp_set_num_threads(threads)
    distances, found = index.search(data, min(_CANDIDATES, len(data)))
    return torch.from_numpy(found).to(device), torch.from_numpy(distances[:, -1]).to(device).double()
