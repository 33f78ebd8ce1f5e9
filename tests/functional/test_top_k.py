"""Largest entries of an update, by hand."""

from __future__ import annotations

import pytest
import torch

from fedwca.errors import UsageError
from fedwca.functional import largest_entries, scatter_entries


def test_the_largest_by_hand() -> None:
    update = torch.tensor([1.0, -4.0, 2.0, 0.0, 3.0])
    positions, values = largest_entries(update, 3)
    assert positions.tolist() == [1, 2, 4]
    assert values.tolist() == [-4.0, 2.0, 3.0]
    assert scatter_entries(positions, values, 5).tolist() == [0.0, -4.0, 2.0, 0.0, 3.0]


def test_of_equal_entries_the_first_are_taken() -> None:
    assert largest_entries(torch.tensor([1.0, -1.0, 1.0, 1.0]), 2)[0].tolist() == [0, 1]
    assert largest_entries(torch.zeros(3), 1)[0].tolist() == [0]


@pytest.mark.parametrize("count", [0, 5])
def test_none_and_all(count: int) -> None:
    update = torch.tensor([1.0, -4.0, 2.0, 0.0, 3.0])
    assert torch.equal(scatter_entries(*largest_entries(update, count), 5), update * (count > 0))


@pytest.mark.parametrize("count", [-1, 3])
def test_more_than_there_are(count: int) -> None:
    with pytest.raises(UsageError, match="count must be from 0 to 2"):
        largest_entries(torch.ones(2), count)


def test_what_is_left_is_at_most_one_minus_k_over_p() -> None:
    # Stich et al., eq. 2: |x - top_k(x)|^2 <= (1 - k/P) |x|^2.
    update = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    remainder = update - scatter_entries(*largest_entries(update, 250), 1000)
    assert float(remainder.square().sum()) <= 0.75 * float(update.square().sum())


def test_precision_stays() -> None:
    positions, values = largest_entries(torch.tensor([1.0, 2.0]).half(), 1)
    assert positions.dtype == torch.int64
    assert values.dtype == torch.float16
    assert scatter_entries(positions.int(), values, 2).dtype == torch.float16
