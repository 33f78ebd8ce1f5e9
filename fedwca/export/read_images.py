"""Images from files, folders and archives as a model takes them; one that cannot be read says so instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedwca.core.printable import printable
from fedwca.data.archives import read_archive_images
from fedwca.data.dataset import Images, resize_images
from fedwca.data.decode_folders import list_files_below
from fedwca.data.image_files import SUFFIXES, decode_image
from fedwca.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class LoadedImage:
    """One image, or why there is none."""

    name: str
    """Its file; for the i-th of an archive ``archive.npz[i]``."""
    pixels: Images | None
    """``[side, side, 3]``"""
    error: str = ""


def find_images(paths: Sequence[Path]) -> list[Path]:
    """Image files and archives: those named, and in folders all below, sorted; hidden ones are left out.

    Raises:
        UsageError: a path does not exist, or a folder holds no images.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [file for file in list_files_below(path) if file.suffix.lower() in {*SUFFIXES, ".npz"}]
            if not inside:
                raise UsageError(f"{path}: no images in this folder; known are {', '.join(sorted(SUFFIXES))}, .npz")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise UsageError(f"{path}: no such file or folder")
    return found


def load_pictures(files: Sequence[Path], side: int, stretch: bool = False) -> Iterator[LoadedImage]:
    """All images of files and archives in order, decoded a few at a time.

    Args:
        files: see `find_images`.
        side: height and width to bring them to.
        stretch: image files that are not square are stretched, not cropped; `ModelDescription.stretch` of the model.

    Returns:
        One `LoadedImage` for each image; an archive that cannot be read is one without pixels.
    """

    def one(file: Path) -> list[LoadedImage]:
        try:
            if _is_archive(file):
                return _archive(file, side)
            return [LoadedImage(printable(str(file)), decode_image(file, side, stretch))]
        except DataError as error:
            return [LoadedImage(printable(str(file)), None, printable(str(error)))]

    with ThreadPoolExecutor(4) as pool:
        for start in range(0, len(files), 64):  # so that a slow reader does not let all images pile up
            some = files[start : start + 64]
            decoded = pool.map(one, [file for file in some if not _is_archive(file)])
            for file in some:  # an archive holds many images, so there is one in memory at a time
                yield from one(file) if _is_archive(file) else next(decoded)


def _is_archive(file: Path) -> bool:
    return file.suffix.lower() == ".npz"


def _archive(file: Path, side: int) -> list[LoadedImage]:
    """The images of an ``.npz``; labels in it are not looked at."""
    images = resize_images(read_archive_images(file), side)
    return [LoadedImage(f"{printable(str(file))}[{index}]", pixels) for index, pixels in enumerate(images)]


def stack_images(found: Sequence[Images]) -> Tensor:
    """Pixels ``[side, side, 3]`` as a tensor ``[N, 3, side, side]`` uint8."""
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).contiguous()
