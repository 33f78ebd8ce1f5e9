"""Reads images from files, folders and archives in a model's input size; an unreadable image becomes an error entry."""

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

CHUNK = 64
"""Images that are in memory in a model's size at a time, however slow the caller is."""


@dataclass(frozen=True, eq=False)
class LoadedImage:
    """One image, or why it could not be read."""

    name: str
    """Path of its file; for image i of an archive ``archive.npz[i]``, counted from 0."""
    pixels: Images | None
    """``[side, side, 3]``; None if the image could not be read."""
    error: str = ""


def find_images(paths: Sequence[Path]) -> list[Path]:
    """Return image files and archives: the given files, and those below given folders, sorted, without hidden ones.

    Raises:
        UsageError: a path does not exist, or a folder holds no images.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            folder_files = [file for file in list_files_below(path) if file.suffix.lower() in {*SUFFIXES, ".npz"}]
            if not folder_files:
                raise UsageError(f"{path}: no images in this folder; known are {', '.join(sorted(SUFFIXES))}, .npz")
            files += folder_files
        elif path.exists():
            files.append(path)
        else:
            raise UsageError(f"{path}: no such file or folder")
    return files


def load_pictures(files: Sequence[Path], side: int, stretch: bool = False) -> Iterator[LoadedImage]:
    """Yield all images of files and archives in order, decoding a few at a time.

    Args:
        files: see `find_images`.
        side: height and width of the result.
        stretch: image files that are not square are stretched, not cropped; `ModelDescription.stretch` of the model.

    Returns:
        A `LoadedImage` for each image; an archive that cannot be read gives one without pixels.
    """

    def decode(file: Path) -> LoadedImage:
        try:
            return LoadedImage(printable(str(file)), decode_image(file, side, stretch))
        except DataError as error:
            return _unreadable(file, error)

    with ThreadPoolExecutor(4) as pool:
        for start in range(0, len(files), CHUNK):
            chunk = files[start : start + CHUNK]
            decoded = pool.map(decode, [file for file in chunk if not _is_archive(file)])
            for file in chunk:
                if _is_archive(file):  # one in memory at a time, as each holds many images
                    yield from _read_archive(file, side)
                else:
                    yield next(decoded)


def _is_archive(file: Path) -> bool:
    return file.suffix.lower() == ".npz"


def _read_archive(file: Path, side: int) -> Iterator[LoadedImage]:
    """Yield the images of an ``.npz``; its labels are ignored."""
    try:
        images = read_archive_images(file)
    except DataError as error:
        yield _unreadable(file, error)
        return
    for start in range(0, len(images), CHUNK):
        for index, pixels in enumerate(resize_images(images[start : start + CHUNK], side), start):
            yield LoadedImage(f"{printable(str(file))}[{index}]", pixels)


def _unreadable(file: Path, error: DataError) -> LoadedImage:
    return LoadedImage(printable(str(file)), None, printable(str(error)))


def stack_images(images: Sequence[Images]) -> Tensor:
    """Stack N images ``[side, side, 3]`` to a tensor ``[N, 3, side, side]`` uint8."""
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
