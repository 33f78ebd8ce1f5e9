"""Reads a client's images from a folder of image files or an ``.npz`` archive; labels are not read."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fedwca.data.archives import read_archive_images
from fedwca.data.dataset import Images, resize_images
from fedwca.data.decode_folders import decode_all, list_files_below
from fedwca.data.image_files import SUFFIXES, decode_image
from fedwca.errors import DataError


def read_images(path: Path, side: int, stretch: bool = False) -> Tensor:
    """Return images uint8 ``[N, 3, side, side]``, sorted by path; subfolders are searched, hidden files left out.

    Args:
        path: a folder of image files, or ``.npz`` with ``images`` uint8 ``[N, H, W]`` (grey) or ``[N, H, W, 3]``.
        side: height and width in pixels.
        stretch: image files that are not square are stretched, not cropped.

    Raises:
        DataError: there is no image, or some cannot be decoded; names them.
    """
    if path.suffix.lower() == ".npz":
        images = _read_archive(path)
    else:
        images = decode_all([partial(decode_image, file, side, stretch) for file in _image_files(path)], side)
    # Channels last in memory, as engines hold them.
    return torch.from_numpy(resize_images(images, side)).permute(0, 3, 1, 2)


def check_images(path: Path) -> int:
    """Return how many images `read_images` would read; each is decoded, since one that does not would stop a round.

    Args:
        path: as for `read_images`.

    Raises:
        DataError: there is no image, or some, or the archive, cannot be decoded; names them.
    """
    if path.suffix.lower() == ".npz":
        return len(_read_archive(path))
    files = _image_files(path)
    return len(decode_all([partial(decode_image, file, 1) for file in files], 1))


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        problem = "is a file that is no .npz" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {problem}; --data takes a folder of images or an .npz file")
    files = [file for file in list_files_below(folder) if file.suffix.lower() in SUFFIXES and file.is_file()]
    if not files:
        raise DataError(f"{folder} holds no images; any of {', '.join(sorted(SUFFIXES))} would do")
    return sorted(files, key=lambda file: file.parts)  # paths of Windows ignore case


def _read_archive(path: Path) -> Images:
    """Return the images of an archive ``[N, H, W, 3]``."""
    if not path.is_file():
        raise DataError(f"{path} does not exist; --data takes a folder of images or an .npz file")
    return read_archive_images(path)
