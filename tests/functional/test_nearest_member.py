from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from fedwca.errors import UsageError
from fedwca.functional import first_neighbours, member_distances


def test_the_nearest_member_counts_not_the_mean() -> None:
    x = torch.tensor([[0.0], [10.0], [6.0], [6.0]])
    distances, members = member_distances(x, torch.tensor([4.5]), torch.tensor([0, 0, 1, 1]), "euclidean")
    assert distances.tolist() == [4.5, 1.5]
    assert members.tolist() == [0, 2]


def test_a_cluster_without_members_is_infinitely_far() -> None:
    distances, members = member_distances(torch.eye(2), torch.tensor([1.0, 0.0]), torch.tensor([0, 2]))
    assert distances.tolist() == pytest.approx([0.0, torch.inf, 1.0])
    assert members.tolist() == [0, -1, 1]


def test_nearly_collinear_rows_are_told_apart_as_finch_does() -> None:
    """Differences of 1e-6 of the length: float32 cosines are all 1."""
    generator = torch.Generator().manual_seed(0)
    source = torch.rand(500, generator=generator, dtype=torch.float64) + 1
    rows = source + 1e-6 * torch.randn(9, 500, generator=generator, dtype=torch.float64)
    rows[-1] = source + 0.9 * (rows[3] - source)
    distances, members = member_distances(rows[:-1], rows[-1], torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    assert int(members[distances.argmin()]) == int(first_neighbours(rows)[-1]) == 3


def test_lengths_do_not_count_for_cosines() -> None:
    x, newcomer, labels = torch.eye(3) + 0.1, torch.tensor([0.3, 1.0, 0.2]), torch.tensor([0, 1, 0])
    near, far = member_distances(x, newcomer, labels)[0], member_distances(3 * x, 7 * newcomer, labels)[0]
    torch.testing.assert_close(near, far)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="expected signatures"):
        member_distances(torch.eye(2), torch.ones(3), torch.tensor([0, 1]))
    with pytest.raises(UsageError, match="no direction"):
        member_distances(torch.eye(2), torch.zeros(2), torch.tensor([0, 1]))
    with pytest.raises(UsageError, match="no metric 'cosin'; there are cosine, euclidean"):
        member_distances(torch.eye(2), torch.ones(2), torch.tensor([0, 1]), "cosin")  # type: ignore[arg-type]
    for metric, value in product(("cosine", "euclidean"), (math.nan, math.inf)):
        for rows, newcomer in ((torch.eye(2) + value, torch.ones(2)), (torch.eye(2), torch.tensor([1.0, value]))):
            with pytest.raises(UsageError, match="not finite"):
                member_distances(rows, newcomer, torch.tensor([0, 1]), metric)
