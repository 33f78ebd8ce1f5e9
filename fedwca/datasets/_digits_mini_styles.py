"""Styles of the five domains of digits_mini: each draws one 32×32 colour image from a base and random numbers."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageFilter

from fedwca.datasets._digits_mini_glyphs import SIZE, Grey, downscale, draw_glyph, jitter

Picture = NDArray[np.uint8]
"""``[32, 32, 3]``."""
Colour = NDArray[np.float32]
"""``[3]`` in 0…255."""
Draw = Callable[[Image.Image, str, np.random.Generator, np.random.Generator], Picture]
"""(base, face or "", generator shared by the variants of the base, generator of this image) → picture."""


def draw_handwritten(base: Image.Image, face: str, style: np.random.Generator, random: np.random.Generator) -> Picture:
    """Light on black, as MNIST, with a finer or broader pen."""
    pen = random.uniform(-1, 1)
    widest = base.filter(ImageFilter.MaxFilter(3) if pen > 0 else ImageFilter.MinFilter(3))
    written = Image.blend(base, widest, abs(pen))
    return _picture(255 * _grey(downscale(jitter(written, random, degrees=12, shear=0.15, scale=(0.8, 1.1)))))


def draw_photo(base: Image.Image, face: str, style: np.random.Generator, random: np.random.Generator) -> Picture:
    """The absolute difference of a photograph and a handwritten digit, as MNIST-M."""
    back = _photo_crop(random)
    return _picture(np.abs(back - 255 * _grey(downscale(jitter(base, random, degrees=5, scale=(0.95, 1.1), shift=2)))))


def draw_printed(base: Image.Image, face: str, style: np.random.Generator, random: np.random.Generator) -> Picture:
    """Ink on squared paper; half of the time the two colours are swapped."""
    paper = np.array([style.uniform(215, 255)] * 3) - [0, 3, style.uniform(4, 22)]
    ink = _colour(style.uniform(0.5, 0.75), style.uniform(0.0, 0.8), style.uniform(10, 90))
    back, front = (paper, ink) if style.uniform() < 0.5 else (ink, paper)
    lines = _squares(int(style.integers(5, 9)), random) * style.uniform(0.2, 0.45)
    return _picture(_mix(_mix(back, front, lines), front, downscale(jitter(base, random, scale=(0.7, 1.0)))))


def draw_street(base: Image.Image, face: str, style: np.random.Generator, random: np.random.Generator) -> Picture:
    """A coloured number on a coloured wall, its neighbours at the edges, out of focus and noisy, as SVHN."""
    wall, number = _two_colours(style)
    side = (-1, 1)[int(random.integers(2))]
    scene = jitter(base, random, degrees=5, scale=(1.0, 1.3), shift=4)
    for direction in (side, -side)[: int(random.integers(1, 3))]:
        neighbour = draw_glyph(face, str(random.integers(10)))
        scene = ImageChops.lighter(
            scene, jitter(neighbour, random, degrees=3, aside=direction * random.uniform(38, 46))
        )
    cover = downscale(scene.filter(ImageFilter.GaussianBlur(float(style.uniform(0.8, 2.6)))))
    light = 1 + style.uniform(-0.3, 0.3) * _ramp(style)
    return _picture(_mix(wall, number, cover) * _grey(light) + random.normal(0, 7, (SIZE, SIZE, 3)))


def draw_neon(base: Image.Image, face: str, style: np.random.Generator, random: np.random.Generator) -> Picture:
    """A glowing coloured outline in the dark."""
    shape = jitter(base, random, scale=(0.8, 1.0))
    outline = ImageChops.difference(shape.filter(ImageFilter.MaxFilter(5)), shape)
    tube, glow = downscale(outline), downscale(outline.filter(ImageFilter.GaussianBlur(4)))
    hue = style.uniform()
    light, night = _colour(hue, 0.85, 255), _colour(hue + style.uniform(0.3, 0.7), 0.7, style.uniform(20, 70))
    dark = night * _grey(1 + 0.6 * _ramp(style))
    return _picture(dark + light * _grey(0.8 * glow) + (0.5 * light + 130) * _grey(tube))


def _picture(values: NDArray[np.floating]) -> Picture:
    return np.clip(np.rint(np.broadcast_to(values, (SIZE, SIZE, 3))), 0, 255).astype(np.uint8)


def _grey(cover: Grey) -> Grey:
    return cover[:, :, None]


def _mix(back: NDArray[np.floating], front: Colour, cover: Grey) -> NDArray[np.floating]:
    return back + (front - back) * _grey(cover)


def _colour(hue: float, saturation: float, value: float) -> Colour:
    return np.array(colorsys.hsv_to_rgb(hue % 1, saturation, value), np.float32)


def _two_colours(random: np.random.Generator) -> tuple[Colour, Colour]:
    """Colours of wall and number, with channel means more than 85 apart; the number is lighter with probability 5/7."""
    while True:
        first, second = (_colour(random.uniform(), random.uniform(0.1, 0.8), random.uniform(40, 245)) for _ in range(2))
        contrast = float(second.mean() - first.mean())
        if contrast > 85 or (contrast < -85 and random.uniform() < 0.4):
            return first, second


def _ramp(random: np.random.Generator) -> Grey:
    """A linear ramp in a random direction, from −1 to 1 at most, ``[32, 32]``."""
    angle = random.uniform(0, 2 * np.pi)
    line = np.linspace(-1, 1, SIZE, dtype=np.float32)
    plane: Grey = ((np.cos(angle) * line[None, :] + np.sin(angle) * line[:, None]) / np.sqrt(2)).astype(np.float32)
    return plane


def _squares(pitch: int, random: np.random.Generator) -> Grey:
    """A grid of lines one pixel wide and ``pitch`` pixels apart, ``[32, 32]``."""
    across, down = (np.arange(SIZE) % pitch == int(random.integers(pitch)) for _ in range(2))
    lines: Grey = (across[None, :] | down[:, None]).astype(np.float32)
    return lines


@cache
def _photos() -> tuple[NDArray[np.float32], ...]:
    """Scikit-learn's two photographs at two scales."""
    from sklearn.datasets import load_sample_images

    images = [Image.fromarray(image) for image in load_sample_images().images]
    return tuple(np.asarray(image.reduce(by), np.float32) for image in images for by in (1, 2))


def _photo_crop(random: np.random.Generator) -> NDArray[np.float32]:
    photo = _photos()[int(random.integers(4))]
    top, left = (int(random.integers(edge - SIZE + 1)) for edge in photo.shape[:2])
    crop = photo[top : top + SIZE, left : left + SIZE]
    return crop[:, ::-1] if random.uniform() < 0.5 else crop


STYLES: Mapping[str, Draw] = {
    "handwritten": draw_handwritten,
    "photo": draw_photo,
    "printed": draw_printed,
    "street": draw_street,
    "neon": draw_neon,
}
"""Drawing function of each domain."""
