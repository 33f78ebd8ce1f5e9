from __future__ import annotations

import pytest
import torch

from fedwca.functional import amplitude_style


def test_a_cosine_has_its_amplitude_at_its_frequency() -> None:
    # cos(2πx/8) over 8 columns: two bins of 8·8/2 = 32 each, left and right of the centre in the middle row.
    x = torch.cos(2 * torch.pi * torch.arange(8) / 8).expand(1, 3, 8, 8)
    window = amplitude_style(x, 0.125).view(3, 3, 3)
    expected = torch.tensor([[0.0, 0, 0], [32, 0, 32], [0, 0, 0]], dtype=torch.float64)
    assert torch.allclose(window, expected.expand(3, 3, 3), atol=1e-5)


def test_the_middle_of_an_image_that_is_no_square_is_its_mean() -> None:
    window = amplitude_style(torch.ones(1, 3, 4, 6), 0.25).view(3, 3, 3)[0]
    assert window.tolist() == [[0, 0, 0], [0, 24, 0], [0, 0, 0]]


def test_phase_is_thrown_away_and_images_are_averaged() -> None:
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(amplitude_style(x), amplitude_style(x.roll((3, 5), (2, 3))))
    assert torch.allclose(amplitude_style(x), (amplitude_style(x[:2]) + amplitude_style(x[2:])) / 2)


@pytest.mark.parametrize(("side", "share", "width"), [(32, 0.05, 3), (224, 0.05, 23), (4, 0.5, 3), (32, 0.5, 31)])
def test_width_of_the_window(side: int, share: float, width: int) -> None:
    assert amplitude_style(torch.zeros(1, 3, side, side, dtype=torch.uint8), share).shape == (3 * width**2,)
