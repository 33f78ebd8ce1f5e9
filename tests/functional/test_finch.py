"""FINCH: the first partition, the hierarchy, and agreement with its authors' package."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional import VectorError, connected_components, finch, finch_levels, first_neighbours

from .clients import collinear


def reference(x: Tensor, metric: str = "cosine") -> list[int]:
    """Level 0 of the authors' package finch-clust."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from finch import FINCH

        partitions, _, _ = FINCH(x.numpy(), distance=metric, verbose=False)
    return [int(label) for label in partitions[:, 0]]


def by_appearance(labels: list[int]) -> list[int]:
    seen: dict[int, int] = {}
    return [seen.setdefault(label, len(seen)) for label in labels]


def same_partition(a: Tensor, b: Tensor) -> bool:
    return by_appearance(a.tolist()) == by_appearance(b.tolist())


@pytest.mark.parametrize("backend", ["torch", "faiss", "hnsw"])
def test_finch_by_hand(backend: str) -> None:
    # points 0, 1, 2.5 chain to one cluster (2.5 -> 1 -> 0); 20, 21 to the other
    x = torch.tensor([20.0, 0.0, 21.0, 1.0, 2.5])[:, None]
    labels = finch(x, backend=backend, metric="euclidean")
    assert labels.tolist() == [0, 1, 0, 1, 1]
    assert labels.dtype == torch.int64


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_up_to_three_clients_are_one_cluster(clients: int) -> None:
    for seed in range(5):
        x = torch.randn(clients, 7, generator=torch.Generator().manual_seed(seed))
        for backend in ("auto", "torch", "faiss"):
            assert finch(x, backend=backend).tolist() == [0] * clients
        assert len(finch_levels(x)) == 1


@pytest.mark.parametrize("backend", ["torch", "faiss", "hnsw"])
@pytest.mark.parametrize("clients", [6, 1100])
def test_equal_rows_are_one_cluster(backend: str, clients: int) -> None:
    assert (finch(torch.randn(1, 30).expand(clients, 30), backend=backend) == 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_level_0_is_finch_clusts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients, size = int(rng.integers(4, 400)), int(rng.integers(3, 60))
    centres = rng.normal(size=(max(2, clients // 8), size)) * 3
    x = torch.from_numpy(centres[rng.integers(0, len(centres), clients)] + rng.normal(size=(clients, size))).float()
    for backend in ("torch", "faiss"):
        assert finch(x, backend=backend).tolist() == by_appearance(reference(x))
        euclidean = finch(x, backend=backend, metric="euclidean")
        assert euclidean.tolist() == by_appearance(reference(x, "euclidean"))


def test_level_0_is_finch_clusts_for_a_thousand() -> None:
    draw = torch.Generator().manual_seed(0)
    x = (5 * torch.randn(50, 32, generator=draw)).repeat_interleave(20, 0) + torch.randn(1000, 32, generator=draw)
    assert finch(x).tolist() == by_appearance(reference(x))


@pytest.mark.parametrize("backend", ["torch", "faiss"])
@pytest.mark.parametrize("seed", range(6))
def test_float64_finds_domains_where_float32_sees_noise(backend: str, seed: int) -> None:
    # three members each: the 1-NN graph within a group of three is always connected, so FINCH must find the groups
    x, truth = collinear(4, 3, 500, 3e-5, seed)  # 1-cos 1e-9 between groups, 1e-11 within
    cosines = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(x).mT
    assert 1e-10 < (1 - cosines).max() < 5e-9
    assert same_partition(finch(x, backend=backend), truth)
    assert not same_partition(finch(x, backend=backend, precision="float32"), truth)
    assert not same_partition(torch.tensor(reference(x)), truth)


def test_float32_weights_of_one_source_at_the_papers_rates() -> None:
    # the same in float32 parameters, as a bank holds them: 1-cos about 1e-6 between groups
    x, truth = collinear(4, 3, 500, 1e-3, 0)
    assert same_partition(finch(x.float()), truth)


@settings(max_examples=50)
@given(k=st.integers(1, 40), size=st.integers(2, 12), seed=st.integers(0, 10**6), gap=st.sampled_from([1.0, 1e-4]))
def test_permutation_equivariance_and_size(k: int, size: int, seed: int, gap: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.ones(size).double() + gap * torch.randn(k, size, generator=draw, dtype=torch.float64)
    order = torch.randperm(k, generator=draw)
    labels = finch(x)
    assert same_partition(finch(x[order]), labels[order])
    assert torch.equal(labels, connected_components(first_neighbours(x)))
    assert labels.tolist() == by_appearance(labels.tolist())
    assert k == 1 or (labels.bincount() >= 2).all()


def test_levels_are_nested_and_end_with_one_cluster() -> None:
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    levels = finch_levels(x)
    counts = [int(labels.max()) + 1 for labels in levels]
    assert len(levels) > 2
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 1
    for fine, coarse in pairwise(levels):
        assert coarse.tolist() == by_appearance(coarse.tolist())
        assert len(set(zip(fine.tolist(), coarse.tolist(), strict=True))) == int(fine.max()) + 1
    for level, labels in enumerate(levels):
        assert torch.equal(finch(x, level), labels)


def test_level_1_clusters_the_means_of_raw_rows() -> None:
    # clusters {0, 1.2}, {3, 4.2}, {10, 12}, {14.5, 16} have means 0.6, 3.6, 11, 15.25: level 1 joins them in pairs
    x = torch.tensor([0.0, 2.0, 3.0 + 2, 3.0, 10.0, 12.0, 14.5, 16.0])[:, None]
    x[1], x[2] = 1.2, 4.2
    levels = [labels.tolist() for labels in finch_levels(x, metric="euclidean")]
    assert levels == [[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1], [0] * 8]


def test_a_level_beyond_the_last_is_clamped_with_a_warning() -> None:
    x = torch.tensor([0.0, 1.0, 10.0, 11.0])[:, None]
    with pytest.warns(UserWarning, match="no level 7; the last one, 1"):
        assert finch(x, 7, metric="euclidean").tolist() == [0, 0, 0, 0]
    with pytest.raises(UsageError, match="level"):
        finch(x, -1)


def test_a_cluster_without_direction_ends_the_hierarchy() -> None:
    # eight directions around a circle sum to zero and chain to one cluster; two such circles at right angles
    ring = [[1, 0], [1, 1], [0, 1], [-1, 1], [-1, 0], [-1, -1], [0, -1], [1, -1]]
    x = torch.block_diag(torch.tensor(ring), torch.tensor(ring)).float()
    assert [labels.tolist() for labels in finch_levels(x)] == [[0] * 8 + [1] * 8]
    # one circle beside a cluster that has a direction
    x[8:] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert [labels.tolist() for labels in finch_levels(x)] == [[0] * 8 + [1] * 8]


def test_a_mean_along_an_axis_has_a_direction() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.0, 0.0, 1.0], [0.0, 0.1, 1.0]])
    assert [labels.tolist() for labels in finch_levels(x)] == [[0, 0, 1, 1], [0, 0, 0, 0]]


def test_a_row_without_direction_is_named() -> None:
    x = torch.randn(5, 3)
    x[4] = 0
    with pytest.raises(VectorError, match="row 4"):
        finch(x)


def test_later_levels_cluster_the_means_of_all_members() -> None:
    # With means of means instead, all rows would be one cluster.
    low, high = [8, 9, 10, 18, 23, 25, 30, 44, 46, 47, 54, 56], [81, 82, 86, 87, 97, 104, 105, 106, 110, 111]
    x = torch.tensor(low + high, dtype=torch.float64)[:, None]
    assert finch_levels(x, metric="euclidean")[2].tolist() == [0] * 12 + [1] * 10
