"""Read the idx format of MNIST and similar sets: a short header, then unsigned bytes of any shape; maybe gzipped."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwca.core.input_files import check_not_special
from fedwca.data.archives import Archive, join_parts
from fedwca.data.dataset import to_three_channels
from fedwca.errors import DataError

UNSIGNED_BYTES = 8
"""Type code of unsigned bytes in the header."""
MOST_BYTES = 2**30
"""Most bytes that are read of one file."""


def find_idx(file: Path) -> Path | None:
    """The file, or its gzipped form ``<file>.gz``; None if neither is there."""
    return next((path for path in (file, file.with_name(f"{file.name}.gz")) if path.is_file()), None)


def read_idx(file: Path) -> NDArray[Any]:
    """Read an array of unsigned bytes, of the shape in the file's header.

    Raises:
        DataError: the file is damaged or holds another type; the message names the file.
    """
    try:
        check_not_special(file)
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            content = opened.read(MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be read as an idx file: {error}") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTES:
        raise DataError(f"{file} is no idx file of unsigned bytes")
    axes = content[3]
    if len(content) < 4 + 4 * axes:
        raise DataError(f"{file} is damaged: its header of {axes} sizes is cut off")
    shape = tuple(np.frombuffer(content[4 : 4 + 4 * axes], ">u4").tolist())
    values = np.frombuffer(content[4 + 4 * axes :], np.uint8)
    if math.prod(shape) != len(values):
        raise DataError(f"{file} is damaged: its header says {list(shape)}, and {len(values):,} bytes are there")
    return values.reshape(shape)


def find_idx_parts(
    folder: Path, parts: tuple[str, str] = ("train", "t10k"), transposed: bool = False
) -> Callable[[], Archive] | None:
    """Find the files of images and labels of both parts.

    They are looked for in ``raw`` below the folder (where torchvision keeps them), in ``gzip``, then in the folder.

    Args:
        folder: of the data set.
        parts: prefixes of the file names of the training and the test part.
        transposed: whether files store images column by column.

    Returns:
        A function that reads them, and raises `DataError` if a file is damaged or the numbers of images and labels
        differ; None if no place has all the files.
    """
    for place in (folder / "raw", folder / "gzip", folder):
        files = [find_idx(place / f"{part}-{kind}-ubyte") for part in parts for kind in ("images-idx3", "labels-idx1")]
        existing = [file for file in files if file is not None]
        if len(existing) == len(files):
            return partial(_read_idx_parts, place, existing, transposed)
    return None


def _read_idx_parts(folder: Path, files: Sequence[Path], transposed: bool) -> Archive:
    archives = []
    for images_file, labels_file in zip(files[::2], files[1::2], strict=True):
        images, labels = read_idx(images_file), read_idx(labels_file)
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise DataError(f"{labels_file} has {list(labels.shape)} labels for images {list(images.shape)}")
        upright = images.transpose(0, 2, 1) if transposed else images
        archives.append(Archive(to_three_channels(upright), labels.astype(np.int64)))
    return join_parts(folder, archives)
