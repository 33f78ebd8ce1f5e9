"""Rotated images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def rotate_images(images: NDArray[np.uint8], degrees: float) -> NDArray[np.uint8]:
    """Turn images counter-clockwise about their centre, as Pillow does with bicubic interpolation.

    Source: FedTTA, app. F (concept shift).

    Args:
        images: uint8 ``[N, H, W, 3]``.
        degrees: angle; corners from outside the image are black.

    Returns:
        uint8 ``[N, H, W, 3]``, a new array.

    >>> images = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    >>> rotate_images(images, 90)[0, 0, 0].tolist()  # the corner on the right
    [3, 4, 5]
    """
    rotated_images = [np.asarray(Image.fromarray(image).rotate(degrees, Image.Resampling.BICUBIC)) for image in images]
    return np.stack(rotated_images) if rotated_images else images.copy()
