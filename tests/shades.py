"""A data set for tests: three domains of squares in different shades, two classes, seconds to learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

DOMAINS = ("amber", "brass", "coral")


def write_shades(folder: Path, images: int = 60, side: int = 32) -> Path:
    """Write ``folder/<domain>.npz``; class 1 has a bright square in the middle, and each domain has its own tint."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for index, name in enumerate(DOMAINS):
        labels = np.arange(images, dtype=np.int64) % 2
        pixels = random.integers(0, 60, (images, side, side, 3), dtype=np.uint8)
        pixels[..., index] += 60
        middle = slice(side // 4, 3 * side // 4)
        pixels[labels == 1, middle, middle] += 100
        np.savez(folder / f"{name}.npz", images=pixels, labels=labels)
    return folder
