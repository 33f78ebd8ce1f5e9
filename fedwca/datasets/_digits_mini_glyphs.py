"""Digits to draw with: 1797 real handwritten ones (scikit-learn) and 14 font faces (matplotlib, Pillow).

Both become a *base*, a grey 64×64 Pillow image of one light digit on black; `place` moves a base about and brings it
to 32×32. Sizes here are pixels of the 64×64 canvas; two of them make one pixel of the finished image.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Grey = NDArray[np.float32]
"""``[32, 32]`` in 0…1: how much of a pixel the digit covers."""

CANVAS, SIZE = 64, 32
HEIGHT = 46
"""Of a digit that is set in type."""
BUILT_IN = "Pillow built-in"
"""The face inside Pillow; every other face is the stem of a file in matplotlib's ``fonts/ttf``."""
FACES = {
    "printed": (
        "STIXGeneral",
        "STIXGeneralItalic",
        "STIXGeneralBol",
        "cmr10",
        "cmti10",
        "DejaVuSerif",
        "DejaVuSerif-Italic",
    ),
    "street": (
        "DejaVuSans-Bold",
        "DejaVuSans-BoldOblique",
        "DejaVuSansMono-BoldOblique",
        "DejaVuSansMono",
        "cmb10",
        "DejaVuSerif-Bold",
        BUILT_IN,
    ),
}
"""Domains of digits_mini that are set in type, and their faces; no face is in two."""


@cache
def load_handwriting() -> tuple[list[Image.Image], NDArray[np.int64]]:
    """Scikit-learn's 1797 handwritten digits, 8×8 with 17 greys, as bases, and their labels ``[1797]``."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = np.clip(digits.images * 16, 0, 255).astype(np.uint8)
    return [_on_canvas(_smooth(Image.fromarray(image))) for image in small], digits.target.astype(np.int64)


def _smooth(small: Image.Image) -> Image.Image:
    """8×8 enlarged to 50×50 and steepened, so that a stroke has an edge instead of a slope."""
    large = np.asarray(small.resize((50, 50), Image.Resampling.BICUBIC), np.float32) / 255
    return Image.fromarray((np.clip((large - 0.25) * 1.8, 0, 1) * 255).astype(np.uint8))


@cache
def draw_glyph(face: str, text: str) -> Image.Image:
    """The base of one character set in one face, `HEIGHT` canvas pixels tall and centred by its outline."""
    size = 96
    font: Any = ImageFont.load_default(size) if face == BUILT_IN else _typeface(face, size)
    left, top, right, bottom = (int(edge) for edge in font.getbbox(text))
    drawn = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(drawn).text((-left, -top), text, font=font, fill=255)
    width = max(1, round(drawn.width * HEIGHT / drawn.height))
    return _on_canvas(drawn.resize((width, HEIGHT), Image.Resampling.LANCZOS))


def _typeface(face: str, size: int) -> ImageFont.FreeTypeFont:
    import matplotlib

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"
    # The basic layout engine is always there, so the drawing does not depend on whether libraqm is.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def _on_canvas(drawn: Image.Image) -> Image.Image:
    canvas = Image.new("L", (CANVAS, CANVAS))
    canvas.paste(drawn, ((CANVAS - drawn.width) // 2, (CANVAS - drawn.height) // 2))
    return canvas


def jitter(
    base: Image.Image,
    random: np.random.Generator,
    *,
    degrees: float = 8.0,
    shear: float = 0.1,
    scale: tuple[float, float] = (0.9, 1.1),
    shift: float = 3.0,
    aside: float = 0.0,
) -> Image.Image:
    """The base turned (±degrees), sheared, scaled and shifted (±canvas pixels), then moved ``aside`` to the right."""
    angle = np.deg2rad(random.uniform(-degrees, degrees))
    lean, grow = random.uniform(-shear, shear), 1 / random.uniform(*scale)
    right, down = random.uniform(-shift, shift, 2)
    a, b = grow * np.cos(angle), grow * (np.sin(angle) + lean)
    d, e = -grow * np.sin(angle), grow * np.cos(angle)
    middle = CANVAS / 2
    x, y = middle + right + aside, middle + down
    # Pillow wants the map from output to input: the middle of the canvas comes from (x, y) moved back.
    matrix = (a, b, middle - a * x - b * y, d, e, middle - d * x - e * y)
    return base.transform((CANVAS, CANVAS), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)


def downscale(canvas: Image.Image) -> Grey:
    """A 64×64 canvas as ``[32, 32]`` in 0…1, each pixel the mean of four."""
    return np.asarray(canvas.reduce(CANVAS // SIZE), np.float32) / np.float32(255)
