"""Strong augmentation, on images whose pixels can be followed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedwca.engine.randomness import fold_key, uniform
from fedwca.functional import strong_augment
from fedwca.functional.augment import OPERATIONS, augment_by_rows, augment_by_selection

NAMES = list(OPERATIONS)


def draw(name: str, strength: float, count: int = 1) -> Tensor:
    """The draws ``[count, 2]`` that select one operation and its strength."""
    return torch.tensor([[(NAMES.index(name) + 0.5) / len(NAMES), strength]] * count, dtype=torch.float64)


def ramp(side: int = 8) -> Tensor:
    """A floating image ``[1, 3, side, side]`` that grows to the right, differently in each channel."""
    row = torch.linspace(0.2, 0.6, side, dtype=torch.float64).expand(side, side)
    return torch.stack([row, row / 2, row / 4])[None]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("strength", [0.0, 0.3, 0.5, 0.999])
def test_shape_range_and_kind_stay(name: str, strength: float) -> None:
    image = torch.randint(0, 256, (2, 3, 9, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    original = image.clone()
    augmented = strong_augment(image, draw(name, strength, 2))
    assert augmented.dtype == torch.uint8
    assert augmented.shape == image.shape
    assert torch.equal(image, original)
    floating = strong_augment(image.double() / 255, draw(name, strength, 2))
    assert 0 <= float(floating.min()) <= float(floating.max()) <= 1
    if name not in ("posterize", "solarize"):  # these jump, and float32 and float64 may fall on both sides
        assert float((floating * 255 - augmented.double()).abs().max()) <= 0.51


def test_identity() -> None:
    image = torch.arange(48, dtype=torch.uint8).view(1, 3, 4, 4)
    assert torch.equal(strong_augment(image, draw("identity", 0.7)), image)


def test_colour_operations_by_hand() -> None:
    x = ramp()
    grey = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    # Strength 0.5 is the factor 1/2.
    torch.testing.assert_close(strong_augment(x, draw("brightness", 0.5)), x / 2)
    torch.testing.assert_close(strong_augment(x, draw("contrast", 0.5)), (x + grey.mean()) / 2)
    torch.testing.assert_close(strong_augment(x, draw("saturation", 0.5)), (x + grey[:, None]) / 2)
    torch.testing.assert_close(strong_augment(x, draw("solarize", 0.3)), torch.where(x < 0.3, x, 1 - x))
    stretched = strong_augment(x, draw("autocontrast", 0.5))
    torch.testing.assert_close(stretched.amin((2, 3)), torch.zeros(1, 3, dtype=torch.float64))
    torch.testing.assert_close(stretched.amax((2, 3)), torch.ones(1, 3, dtype=torch.float64))


def test_colour_operations_at_the_ends() -> None:
    """Factors go from 0.05 to 0.95."""
    x = ramp()
    grey = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    torch.testing.assert_close(strong_augment(x, draw("brightness", 0.0)), 0.05 * x)
    torch.testing.assert_close(strong_augment(x, draw("brightness", 0.9)), 0.86 * x)
    torch.testing.assert_close(strong_augment(x, draw("contrast", 0.0)), 0.05 * x + 0.95 * grey.mean())
    torch.testing.assert_close(strong_augment(x, draw("saturation", 0.0)), 0.05 * x + 0.95 * grey[:, None])
    point = torch.zeros(1, 3, 5, 5, dtype=torch.float64)
    point[..., 2, 2] = 1
    assert float(strong_augment(point, draw("sharpness", 0.0))[0, 0, 2, 2]) == pytest.approx(0.05 + 0.95 * 5 / 13)


def test_posterize_keeps_the_upper_bits() -> None:
    image = torch.tensor([255, 200, 100, 17, 16, 15], dtype=torch.uint8).expand(1, 3, 1, 6).contiguous()
    four = strong_augment(image, draw("posterize", 0.0))
    assert four[0, 0, 0].tolist() == [240, 192, 96, 16, 16, 0]
    six = strong_augment(image, draw("posterize", 0.5))  # 4 and the whole part of 5 · 0.5
    assert six[0, 0, 0].tolist() == [252, 200, 100, 16, 16, 12]
    assert torch.equal(strong_augment(image, draw("posterize", 0.999)), image)


def test_posterize_takes_no_bit_away_for_rounding() -> None:
    # Stretched from 0, 3, 9 to 0, 1/3, 1: 255 times a third is 85, though in float32 just below it.
    image = torch.tensor([0, 3, 9], dtype=torch.uint8).expand(1, 3, 1, 3).contiguous()
    draws = torch.cat([draw("autocontrast", 0.0), draw("posterize", 0.999)], 1)
    assert strong_augment(image, draws)[0, 0, 0].tolist() == [0, 85, 255]


def test_sharpness_blurs() -> None:
    image = torch.zeros(1, 3, 5, 5, dtype=torch.float64)
    image[..., 2, 2] = 1
    augmented = strong_augment(image, draw("sharpness", 0.5))
    assert float(augmented[0, 0, 2, 2]) == pytest.approx((1 + 5 / 13) / 2)
    assert float(augmented[0, 0, 1, 1]) == pytest.approx(1 / 13 / 2)
    # A uniform image does not change, not even at its border.
    torch.testing.assert_close(
        strong_augment(torch.full_like(image, 0.4), draw("sharpness", 0)), torch.full_like(image, 0.4)
    )


def test_strength_one_half_moves_nothing_and_the_sides_move_apart() -> None:
    x = ramp(9)
    for name in ("rotate", "shear_x", "shear_y", "translate_x", "translate_y"):
        torch.testing.assert_close(strong_augment(x, draw(name, 0.5)), x)
        left, right = strong_augment(x, draw(name, 0.1)), strong_augment(x, draw(name, 0.9))
        assert not torch.allclose(left, right)


def test_translation_by_whole_pixels() -> None:
    x = ramp(10)
    # 2s - 1 = 2/3 of 0.3 of the side: two pixels of ten, and black comes in.
    augmented = strong_augment(x, draw("translate_x", 5 / 6))
    torch.testing.assert_close(augmented[..., :8], x[..., 2:])
    assert float(augmented[..., 8:].abs().max()) < 1e-9
    turned = x.transpose(2, 3).contiguous()
    augmented = strong_augment(turned, draw("translate_y", 5 / 6))
    torch.testing.assert_close(augmented[..., :8, :], turned[..., 2:, :])
    assert float(augmented[..., 8:, :].abs().max()) < 1e-9


def follow(name: str, strength: float, place: tuple[int, int]) -> tuple[float, float]:
    """Where a bright point at ``place`` (row, column) of an image of 41 × 41 pixels goes, in pixels from the centre."""
    image = torch.zeros(1, 3, 41, 41, dtype=torch.float64)
    image[..., place[0], place[1]] = 1
    augmented = strong_augment(image, draw(name, strength))[0, 0]
    offsets = torch.arange(41, dtype=torch.float64) - 20
    return float((augmented.sum(1) @ offsets) / augmented.sum()), float((augmented.sum(0) @ offsets) / augmented.sum())


def test_rotation_and_shears_by_a_point() -> None:
    """Strength 3/4 is half of the largest change: 15 degrees, a shear of 0.15."""
    # The point is ten pixels right of the centre. Each pixel shows what was 15 degrees ahead, so the point moves back.
    down, right = follow("rotate", 0.75, (20, 30))
    assert (down, right) == (
        pytest.approx(-10 * math.sin(math.radians(15)), abs=0.02),
        pytest.approx(10 * math.cos(math.radians(15)), abs=0.02),
    )
    assert follow("shear_x", 0.75, (30, 20)) == (pytest.approx(10, abs=0.02), pytest.approx(-1.5, abs=0.1))
    assert follow("shear_y", 0.75, (20, 30)) == (pytest.approx(-1.5, abs=0.02), pytest.approx(10, abs=0.1))


def test_two_operations_in_turn() -> None:
    x = ramp()
    both = torch.cat([draw("brightness", 0.5), draw("solarize", 0.2)], 1)
    torch.testing.assert_close(strong_augment(x, both), torch.where(x / 2 < 0.2, x / 2, 1 - x / 2))


def test_an_image_does_not_depend_on_its_neighbours() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (30, 3, 8, 8), dtype=torch.uint8, generator=generator)
    draws = torch.rand(30, 4, generator=generator)
    together = strong_augment(images, draws)
    assert all(torch.equal(strong_augment(images[i : i + 1], draws[i : i + 1])[0], together[i]) for i in range(30))
    assert len({tuple((row * len(NAMES)).long().tolist()) for row in draws[:, [0, 2]]}) > 20


def test_selection_gives_what_rows_give() -> None:
    chosen = torch.arange(4 * len(OPERATIONS)) % len(OPERATIONS)
    images = uniform(fold_key(["selected"]), torch.arange(len(chosen) * 3 * 12 * 10)).view(-1, 3, 12, 10)
    strength = uniform(fold_key(["strength"]), torch.arange(len(chosen))).view(-1, 1, 1, 1)
    by_rows, by_selection = augment_by_rows(images, chosen, strength), augment_by_selection(images, chosen, strength)
    torch.testing.assert_close(by_rows, by_selection, rtol=0, atol=1e-12)
    assert (by_rows - images).abs().amax((1, 2, 3))[chosen > 0].gt(0.01).float().mean() > 0.9
