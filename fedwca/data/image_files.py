"""Decode an image file of any format and orientation to pixels of the size that is asked for."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fedwca.core.input_files import check_not_special
from fedwca.data.dataset import Images
from fedwca.errors import DataError

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)


DECODER = 3
"""Version of how image files become pixels: raised with each change, so that old caches are not read."""


def decode_image(source: Path | io.BytesIO, size: int, stretch: bool = False, name: str = "") -> Images:
    """Decode one image to ``[size, size, 3]``; see `fedwca.data.read_image_folder`.

    Args:
        source: an image file, or the content of one.
        size: height and width in pixels.
        stretch: whether an image that is not square is stretched instead of cropped.
        name: of the image in error messages; empty: the path.

    Raises:
        DataError: the image does not decode, or its grey values fit no known range; the message names it.
    """
    try:
        if isinstance(source, Path):
            check_not_special(source)
        with Image.open(source) as file:
            image = _rgb(_turn_upright(file), sixteen_bits=file.mode.startswith("I;16") or file.format == "PPM")
            if stretch:
                return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
            return np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR))
    except UnidentifiedImageError as error:  # its own message is the path once more
        raise DataError(f"{name or source} does not decode as an image: it has no known image format") from error
    except Exception as error:  # Pillow raises many kinds of exceptions for broken files
        raise DataError(f"{name or source} does not decode as an image: {error}") from error


def _turn_upright(file: Image.Image) -> Image.Image:
    """The image rotated by its EXIF orientation, or as it is stored if its EXIF block is invalid."""
    file.load()  # outside the try below: damaged pixels are an error
    try:
        return ImageOps.exif_transpose(file)
    except Exception:  # EXIF blocks are often malformed, and Pillow raises many kinds of exceptions for them
        return file


def _rgb(image: Image.Image, sixteen_bits: bool) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return Image.fromarray(_scale_grey(np.asarray(image, np.float64), image.mode, sixteen_bits)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _scale_grey(values: NDArray[np.float64], mode: str, sixteen_bits: bool) -> NDArray[np.uint8]:
    """Grey values of more than 8 bits scaled to 0…255; Pillow's own conversion clips them, which turns them white.

    Raises:
        ValueError: the values fit none of the ranges that are known.
    """
    low, high = values.min(), values.max()
    # Values a little above 1 are no picture of 0 to 255: all of it would be black.
    if not 0 <= low <= high <= 65535 or (mode == "F" and 1 < high < 2):  # not: NaN is in no range
        raise ValueError(f"its grey values are {low:g} to {high:g}; scale them to 0 to 65535, or to 0 to 1, first")
    if mode == "F" and high <= 1:
        return (values * 255).astype(np.uint8)
    # If the file states a range of 16 bits, scale by it and not by the brightest pixel, so that images of one
    # camera keep their differences in brightness.
    return (values * (255 / 65535 if sixteen_bits or high > 255 else 1.0)).astype(np.uint8)
