from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedwca.functional.crops import center_crop, crop_and_flip, crop_corners


def picture(height: int, width: int) -> torch.Tensor:
    """Pixel (row r, column c) of image b and channel k has the value 1000 b + 100 k + 10 r + c."""
    b, k, r, c = torch.meshgrid(
        torch.arange(2), torch.arange(3), torch.arange(height), torch.arange(width), indexing="ij"
    )
    return 1000 * b + 100 * k + 10 * r + c


def test_crop_and_flip_by_hand() -> None:
    x = picture(4, 5)
    cut = crop_and_flip(x, torch.tensor([1, 2]), torch.tensor([0, 3]), torch.tensor([False, True]), 2)
    assert cut[0, 0].tolist() == [[10, 11], [20, 21]]
    assert cut[0, 2].tolist() == [[210, 211], [220, 221]]
    assert cut[1, 0].tolist() == [[1024, 1023], [1034, 1033]]
    assert cut.is_contiguous(memory_format=torch.channels_last)


def test_the_centre_of_an_odd_rest() -> None:
    assert center_crop(picture(4, 5), 2)[0, 0].tolist() == [[11, 12], [21, 22]]
    assert torch.equal(center_crop(picture(4, 4), 4), picture(4, 4))


def test_corners_by_hand() -> None:
    # 256 - 224 + 1 = 33 places down, 5 - 4 + 1 = 2 across.
    draws = torch.tensor([[0.0, 0.0], [0.5, 0.5], [1 - 2**-53, 1 - 2**-53], [1 / 33, 0.49]], dtype=torch.float64)
    top, left = crop_corners(draws, 256, 5 + 220, 224)
    assert top.tolist() == [0, 16, 32, 1]
    assert left.tolist() == [0, 1, 1, 0]


def test_rounding_never_leaves_the_image() -> None:
    # In float32 the largest number below 1, times 33, rounds to 33.
    draws = torch.full((1, 2), 1 - 2**-24, dtype=torch.float32)
    assert [edge.item() for edge in crop_corners(draws, 256, 256, 224)] == [32, 32]


@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 3), st.integers(0, 1000))
def test_crops_equal_slices(side: int, down: int, across: int, seed: int) -> None:
    x = picture(side + down, side + across)
    draws = torch.rand(2, 3, generator=torch.Generator().manual_seed(seed))
    top, left = crop_corners(draws[:, :2], side + down, side + across, side)
    cut = crop_and_flip(x, top, left, draws[:, 2] < 0.5, side)
    for b in range(2):
        plain = x[b, :, top[b] : top[b] + side, left[b] : left[b] + side]
        assert torch.equal(cut[b], plain.flip(2) if draws[b, 2] < 0.5 else plain)
