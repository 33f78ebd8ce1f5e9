"""Image files: one of any format and orientation, decoded to the pixels that are trained on."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from fedwca.core.input_files import check_not_special
from fedwca.data.dataset import Images
from fedwca.errors import DataError

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)


DECODER = 2
"""Counts changes in how an image becomes pixels, so that an old cache is not taken for a new one."""


def decode_image(path: Path, size: int, stretch: bool = False) -> Images:
    """One image file as ``[size, size, 3]``; see `read_image_folder`.

    Raises:
        DataError: the file does not decode; the message names it.
    """
    return _decode(path, str(path), size, stretch)


def decode_bytes(content: bytes, name: str, size: int) -> Images:
    """As `decode_image`, of what a file holds.

    Args:
        content: of the file.
        name: what messages call it.
        size: height and width in pixels.

    Raises:
        DataError: it does not decode.
    """
    return _decode(io.BytesIO(content), name, size, False)


def _decode(source: Path | io.BytesIO, name: str, size: int, stretch: bool) -> Images:
    try:
        if isinstance(source, Path):
            check_not_special(source)
        with Image.open(source) as file:
            image = _rgb(_turn_upright(file), sixteen_bits=file.mode.startswith("I;16") or file.format == "PPM")
            if stretch:
                return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
            return np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR))
    except DataError:
        raise
    except Exception as error:  # Pillow raises as many kinds as files can be broken in
        raise DataError(f"{name} does not decode as an image: {error}") from error


def _turn_upright(file: Image.Image) -> Image.Image:
    """The image as its EXIF block says it was taken; as it is stored where that block makes no sense."""
    file.load()  # what is wrong with the pixels is an error
    try:
        return ImageOps.exif_transpose(file)
    except Exception:  # cameras and editors write all kinds of things there, and Pillow raises as many
        return file


def _rgb(image: Image.Image, sixteen_bits: bool) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        # Pillow clips these at 255 instead of scaling them; 16-bit greys would turn white.
        wide, largest = np.asarray(image, np.float64), np.asarray(image).max(initial=0)
        # By the file where it says the range, so that images of one camera keep their differences.
        scale = 255 / 65535 if sixteen_bits or largest > 255 else 1.0
        if image.mode == "F" and largest <= 1:
            scale = 255.0
        return Image.fromarray(np.clip(wide * scale, 0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")
