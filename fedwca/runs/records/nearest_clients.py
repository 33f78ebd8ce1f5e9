"""First neighbours of clients after round 0, and how close to a tie they are."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import torch
from torch import Tensor

from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.interface import Engine
from fedwca.federated.assign_clusters import read_client_vectors
from fedwca.federated.method import Method
from fedwca.functional import VectorError, first_neighbours


def nearest_clients(method: Method, engine: Engine, source: Tensor) -> dict[str, Any]:
    """Each client's first neighbour after round 0 and its margin.

    Empty if the clusterer compares no model parameters, or if a client's has no direction where directions count.

    Args:
        method: the method.
        engine: its bank holds the clustered models.
        source: the model that all clients started from ``[P]``.
    """
    clusterer = method.clusterer
    # All pairs are compared, and a picture of more clients would be unreadable.
    if clusterer is None or clusterer.neighbour_metric is None or not 2 < len(engine.bank) <= 2048:
        return {}
    with warnings.catch_warnings(action="ignore"):  # the clusterer has already warned
        compared = read_client_vectors(clusterer, BankSignatures(engine.bank, engine.layout, source))
    if compared is None:
        return {}
    try:
        nearest, margins = neighbour_margins(compared[0], clusterer.neighbour_metric)
    except VectorError:  # the update of a client that did not train; k-means has grouped it by distance
        return {}
    return {"nearest": nearest, "margins": margins}


def neighbour_margins(x: Tensor, metric: Literal["cosine", "euclidean"]) -> tuple[Tensor, Tensor]:
    """First neighbour of each row ``[K]``, and the second one's distance divided by the first's ``[K]``, at least 1.

    Args:
        x: ``[K, P]``, K at least 3.
        metric: as in `fedwca.functional.first_neighbours`; for cosine, distances are between unit vectors.

    >>> neighbour_margins(torch.tensor([[0.0], [1.0], [3.0]]), "euclidean")
    (tensor([1, 0, 1]), tensor([3.0000, 2.0000, 1.5000], dtype=torch.float64))
    """
    nearest = first_neighbours(x, metric=metric)
    rows = x.double() if metric == "euclidean" else torch.nn.functional.normalize(x.double())
    # Not via a matrix product, which would round away the differences of nearly equal models.
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    first = distances.gather(1, nearest[:, None])[:, 0]
    second = distances.scatter(1, nearest[:, None], torch.inf).amin(1)
    return nearest, torch.where(second == first, 1.0, second / first).clamp_min(1)
