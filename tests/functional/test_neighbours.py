"""First neighbours with each backend, and connected components."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components as scipy_components

from fedwca.errors import DataError, UsageError
from fedwca.functional import VectorError, _nearest, connected_components, first_neighbours, neighbours
from fedwca.functional._nearest import search_candidates
from fedwca.functional.neighbours import Precision

from .clients import collinear

EXACT = ("torch", "faiss")
BACKENDS = (*EXACT, "hnsw")


def slow_neighbours(x: np.ndarray, metric: str) -> list[int]:
    """Nearest other row of each row, one row at a time, in the longest floats that numpy has."""
    rows = x.astype(np.longdouble)
    if metric == "cosine":
        rows = rows / np.sqrt((rows**2).sum(1, keepdims=True))
    answers = []
    for i in range(len(rows)):
        distances = ((rows - rows[i]) ** 2).sum(1)
        distances[i] = np.inf
        answers.append(int(distances.argmin()))
    return answers


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_first_neighbours_by_hand(backend: str, metric: str) -> None:
    # directions 0°, 10°, 90°, 83°; on the unit circle both metrics agree
    angles = torch.tensor([0.0, 10.0, 90.0, 83.0]).deg2rad()
    x = torch.stack([angles.cos(), angles.sin()], 1)
    assert first_neighbours(x, backend=backend, metric=metric).tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_rows_are_searched_a_few_at_a_time(precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nearest, "_NUMBERS", 16)  # two of eight rows at once
    rows = torch.tensor([0.0, 1.0, 10.0, 11.0, 100.0, 101.0, 110.0, 111.0])[:, None]
    found = first_neighbours(rows, backend="torch", precision=precision, metric="euclidean")
    assert found.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]


def test_cosine_ignores_lengths_and_euclidean_does_not() -> None:
    x = torch.tensor([[1.0, 0.0], [100.0, 1.0], [1.0, 1.0]])
    assert first_neighbours(x).tolist() == [1, 0, 1]
    assert first_neighbours(x, metric="euclidean").tolist() == [2, 2, 0]


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("seed", range(5))
def test_exact_backends_are_the_slow_loop(backend: str, metric: str, seed: int) -> None:
    x = torch.randn(80, 3 + 5 * seed, generator=torch.Generator().manual_seed(seed)) + 2
    assert first_neighbours(x, backend=backend, metric=metric).tolist() == slow_neighbours(x.numpy(), metric)


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("gap", [1e-2, 1e-4, 3e-5])  # 1-cos between groups 1e-4, 1e-8, 1e-9
def test_nearly_collinear_rows(backend: str, gap: float) -> None:
    x, _ = collinear(4, 6, 500, gap, 0)
    assert first_neighbours(x, backend=backend).tolist() == slow_neighbours(x.numpy(), "cosine")


def test_float32_is_rounding_noise_for_nearly_collinear_rows() -> None:
    x, _ = collinear(4, 6, 500, 3e-5, 0)
    right = first_neighbours(x)
    for backend in EXACT:
        assert (first_neighbours(x, backend=backend, precision="float32") == right).float().mean() < 0.8


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_float32_is_fine_for_separated_rows(backend: str, metric: str) -> None:
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    fast = first_neighbours(x, backend=backend, precision="float32", metric=metric)
    assert torch.equal(fast, first_neighbours(x, metric=metric))


@pytest.mark.parametrize("backend", EXACT)
def test_one_far_row_does_not_drown_the_others(backend: str) -> None:
    x, _ = collinear(3, 8, 60, 1e-4, 2)
    x[5] = -x[5]  # the centre is now far from everybody
    assert first_neighbours(x, backend=backend).tolist() == slow_neighbours(x.numpy(), "cosine")
    x[5] *= 1e6
    slow = slow_neighbours(x.numpy(), "euclidean")
    assert first_neighbours(x, backend=backend, metric="euclidean").tolist() == slow


@pytest.mark.parametrize("backend", EXACT)
def test_a_common_offset_after_normalisation_changes_nothing(backend: str) -> None:
    x = torch.randn(30, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = x / x.norm(dim=1, keepdim=True)
    shifted = unit + 7 * torch.ones(8, dtype=torch.float64)
    assert torch.equal(first_neighbours(shifted, backend=backend, metric="euclidean"), first_neighbours(x))


@pytest.mark.parametrize("backend", EXACT)
def test_ties_go_to_the_lowest_index_and_never_to_itself(backend: str) -> None:
    square = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    assert first_neighbours(square, backend=backend, metric="euclidean").tolist() == [1, 0, 0, 1]
    twins = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(15, 1)  # more equal rows than candidates
    expected = [2, 3] + [0, 1] * 14
    assert first_neighbours(twins, backend=backend).tolist() == expected
    # Rows a rounding error apart are equal too, also where all others are hardly farther.
    almost = torch.tensor([[1.0, 0.0], [1.0, 2e-16], [1.0, 1e-12], [1.0, 0.0]], dtype=torch.float64)
    assert first_neighbours(almost, backend=backend).tolist()[:2] == [1, 0]
    lengths = torch.linspace(0.1, 7, 30, dtype=torch.float64)[:, None]
    assert first_neighbours(twins * lengths, backend=backend).tolist() == expected


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_all_equal_rows_point_to_the_first(backend: str, metric: str) -> None:
    x = torch.randn(1, 9).expand(20, 9)
    assert first_neighbours(x, backend=backend, metric=metric).tolist() == [1] + [0] * 19


def test_multiples_of_one_vector_are_equal_in_direction() -> None:
    x = torch.linspace(0.3, 9, 25, dtype=torch.float64)[:, None] * torch.randn(1, 40, dtype=torch.float64)
    assert first_neighbours(x).tolist() == [1] + [0] * 24


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_rows_whose_squares_are_no_numbers(scale: float) -> None:
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(first_neighbours(x * scale), first_neighbours(x))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_float32_extremes(scale: float) -> None:
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    for metric in ("cosine", "euclidean"):
        assert torch.equal(first_neighbours(x * scale, metric=metric), first_neighbours(x, metric=metric))


@pytest.mark.parametrize(("rows", "expected"), [(30, "faiss"), (31, "hnsw")])
def test_auto_is_exact_up_to_a_border(rows: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert neighbours.EXACT == 10_000
    backends = []

    def spy(vectors: torch.Tensor, backend: str, metric: str) -> tuple[torch.Tensor, torch.Tensor]:
        backends.append(backend)
        return search_candidates(vectors, backend, metric)

    monkeypatch.setattr(neighbours, "EXACT", 30)
    monkeypatch.setattr(neighbours, "search_candidates", spy)
    first_neighbours(torch.randn(rows, 5, generator=torch.Generator().manual_seed(0)))
    assert backends == [expected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_callers_rows_stay_as_they_are(dtype: torch.dtype) -> None:
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    original = x.clone()
    for backend in BACKENDS:
        for metric in ("cosine", "euclidean"):
            first_neighbours(x, backend=backend, metric=metric)
    assert torch.equal(x, original)


FORKED = """
import os, sys, torch
from fedwca.errors import UsageError
from fedwca.functional import first_neighbours
x = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
for backend in sys.argv[1:]:
    torch.set_num_threads(2)
    expected = first_neighbours(x, backend=backend)
    if not (child := os.fork()):
        try:
            first_neighbours(x, backend=backend)
        except UsageError as error:
            torch.set_num_threads(1)
            right = "spawn" in str(error) and torch.equal(first_neighbours(x, backend=backend), expected)
            os._exit(0 if right else 3)
        os._exit(4)
    print(backend, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_is_refused_where_it_would_wait_forever() -> None:
    result = subprocess.run(
        [sys.executable, "-c", FORKED, *BACKENDS], capture_output=True, text=True, timeout=250, check=False
    )
    assert result.stdout.splitlines() == [f"{backend} 0" for backend in BACKENDS], result.stderr


def test_all_backends_agree_on_a_thousand_rows() -> None:
    x = torch.randn(1000, 20, generator=torch.Generator().manual_seed(0)) + 1
    expected = first_neighbours(x, backend="torch")
    assert torch.equal(first_neighbours(x), expected)
    assert torch.equal(first_neighbours(x, backend="faiss"), expected)
    graph = first_neighbours(x, backend="hnsw")
    assert torch.equal(first_neighbours(x, backend="hnsw"), graph)  # deterministic
    assert (graph == expected).float().mean() > 0.95


def test_rows_are_added_to_a_graph_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr("faiss.omp_get_max_threads", lambda: 7)
    monkeypatch.setattr("faiss.omp_set_num_threads", threads.append)
    first_neighbours(torch.eye(4), backend="hnsw")
    assert threads == [1, 7], "several would add them in varying order"


def test_a_large_group_of_equal_rows_in_faiss() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).repeat_interleave(300, 0)
    first = (torch.arange(1200) // 300) * 300
    expected = torch.where(torch.arange(1200) == first, first + 1, first)
    assert torch.equal(first_neighbours(x), expected)


def test_centring_lets_float32_search_suffice_for_collinear_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = collinear(10, 30, 100, 3e-5, 0)
    expected = first_neighbours(x, backend="torch")
    monkeypatch.setattr("fedwca.functional.neighbours.exact_neighbours", None)  # would be called if faiss were not sure
    assert torch.equal(first_neighbours(x, backend="faiss"), expected)


def test_what_cannot_be_compared_is_named() -> None:
    x = torch.ones(4, 3)
    x[2, 1] = torch.nan
    with pytest.raises(VectorError, match=r"row 2 .* not finite") as caught:
        first_neighbours(x)
    assert isinstance(caught.value, DataError)
    assert isinstance(caught.value, ValueError)
    x[2] = torch.inf
    with pytest.raises(VectorError, match="row 2"):
        first_neighbours(x, metric="euclidean")
    x[2] = 0
    with pytest.raises(VectorError, match=r"row 2 .* no direction"):
        first_neighbours(x)
    assert first_neighbours(x, metric="euclidean").tolist() == [1, 0, 0, 0]


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(UsageError, match=r"tensor \[K, P\], got ndarray"):
        first_neighbours(np.ones((2, 2)))  # type: ignore[arg-type]
    for shape in ((0, 3), (3, 0), (5,), (2, 2, 2)):
        with pytest.raises(UsageError, match=r"\[K, P\]"):
            first_neighbours(torch.ones(shape))
    x = torch.ones(2, 2)
    for option in ("backend", "precision", "metric"):
        with pytest.raises(UsageError, match=option):
            first_neighbours(x, **{option: "abacus"})
    with pytest.raises(UsageError, match="0 to 1"):
        connected_components(torch.tensor([0, 2]))


def test_no_second_openmp_is_loaded_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert first_neighbours(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2]])).tolist() == [2, 2, 0]


def test_components_by_hand() -> None:
    # 0 -> 4 -> 0; 1 -> 2 -> 3 -> 1 (a cycle of three); 5 -> 3; 6 -> 6
    assert connected_components(torch.tensor([4, 2, 3, 1, 0, 3, 6])).tolist() == [0, 1, 1, 1, 0, 1, 2]
    assert connected_components(torch.tensor([], dtype=torch.long)).tolist() == []


@settings(max_examples=150)
@given(st.integers(1, 60).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
def test_components_are_scipys(neighbours: list[int]) -> None:
    n = len(neighbours)
    graph = csr_matrix((np.ones(n), (np.arange(n), neighbours)), shape=(n, n))
    _, expected = scipy_components(graph, directed=False)
    assert connected_components(torch.tensor(neighbours)).tolist() == expected.tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 4097])
def test_components_of_one_long_path_and_one_long_cycle(n: int) -> None:
    path = torch.arange(1, n + 1).clamp_max(n - 1)
    assert (connected_components(path) == 0).all()
    assert (connected_components(torch.arange(n).roll(1)) == 0).all()
    assert torch.equal(connected_components(torch.arange(n)), torch.arange(n))
