"""Small data sets for tests, and the folder of the real files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedwca.data import Domain, FederatedDataset

SHARED = Path(os.environ.get("FEDWCA_SHARED") or Path(__file__).resolve().parents[2] / "../shared").resolve() / "data"
needs_shared = pytest.mark.skipif(
    not (SHARED / "digit_five").is_dir(), reason="no real files: neither ../shared/data nor FEDWCA_SHARED/data"
)


def domain(name: str, images: int, *, classes: int = 10, groups: np.ndarray | None = None, side: int = 4) -> Domain:
    """A domain whose image i has the number i in its first two bytes, so that a test can follow it."""
    pixels = np.zeros((images, side, side, 3), np.uint8)
    pixels[:, 0, 0, 0], pixels[:, 0, 0, 1] = np.arange(images) // 256, np.arange(images) % 256
    return Domain(name, pixels, np.arange(images, dtype=np.int64) % classes, groups)


def dataset(*domains: Domain, classes: int = 10) -> FederatedDataset:
    return FederatedDataset("toy", tuple(map(str, range(classes))), {d.name: d for d in domains})


def write_npz(path: Path, count: int = 6, **changes: np.ndarray | None) -> Path:
    arrays = {"images": np.zeros((count, 8, 8), np.uint8), "labels": np.arange(count, dtype=np.int64), **changes}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def write_images(root: Path, domains: dict[str, dict[str, int]], side: int = 10) -> Path:
    """Write ``root/<domain>/<class>/<number>.png``; an image is uniformly grey, with the value ``10 * number``."""
    for domain_name, classes in domains.items():
        for class_name, count in classes.items():
            folder = root / domain_name / class_name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (side, side), (number * 10,) * 3).save(folder / f"{number}.png")
    return root


PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PACS = {name: dict.fromkeys(PACS_CLASSES, 1) for name in ("art_painting", "cartoon", "photo", "sketch")}
"""One image of each class and domain, for `write_images`."""
