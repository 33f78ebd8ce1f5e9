"""Digits to draw with: 1797 real handwritten ones (scikit-learn) and 14 font faces (matplotlib, Pillow).

Both become a *base*, a grey 64×64 Pillow image of one light digit on black; `jitter` moves a base at random and
`downscale` reduces it to 32×32. Sizes here are pixels of the 64×64 canvas; the finished image has half as many.
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
"""Height of a digit that is drawn from a font."""
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
"""Font faces of the domains of digits_mini that are drawn from fonts; no face is in two domains."""


@cache
def load_handwriting() -> tuple[list[Image.Image], NDArray[np.int64]]:
    """Scikit-learn's 1797 handwritten digits, 8×8 with 17 greys, as bases, and their labels ``[1797]``."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = np.clip(digits.images * 16, 0, 255).astype(np.uint8)
    return [_on_canvas(_smooth(Image.fromarray(image))) for image in small], digits.target.astype(np.int64)


def _smooth(small: Image.Image) -> Image.Image:
    """Enlarge an 8×8 image to 50×50 pixels and raise its contrast, so that strokes have sharp edges."""
    large = np.asarray(small.resize((50, 50), Image.Resampling.BICUBIC), np.float32) / 255
    return Image.fromarray((np.clip((large - 0.25) * 1.8, 0, 1) * 255).astype(np.uint8))


@cache
def draw_glyph(face: str, text: str) -> Image.Image:
    """Draw the base of a character in a font face, `HEIGHT` canvas pixels tall and centred by its outline."""
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
    # The basic layout engine is always there, so that the drawing does not depend on libraqm.
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
    """Rotate (±degrees), shear, scale and shift (±canvas pixels) a base at random; move it right by ``aside``."""
    angle = np.deg2rad(random.uniform(-degrees, degrees))
    lean, inverse_scale = random.uniform(-shear, shear), 1 / random.uniform(*scale)
    right, down = random.uniform(-shift, shift, 2)
    a, b = inverse_scale * np.cos(angle), inverse_scale * (np.sin(angle) + lean)
    d, e = -inverse_scale * np.sin(angle), inverse_scale * np.cos(angle)
    middle = CANVAS / 2
    x, y = middle + right + aside, middle + down
    # Pillow takes the map from output to input pixels: (x, y) of the output is the middle of the input.
    matrix = (a, b, middle - a * x - b * y, d, e, middle - d * x - e * y)
    return base.transform((CANVAS, CANVAS), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)


def downscale(canvas: Image.Image) -> Grey:
    """A 64×64 canvas as ``[32, 32]`` in 0…1, each pixel the mean of four."""
    return np.asarray(canvas.reduce(CANVAS // SIZE), np.float32) / np.float32(255)
