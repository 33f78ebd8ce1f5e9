"""Read and check ``.npz`` archives, each of which holds one domain."""

from __future__ import annotations

import hashlib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwca.core.input_files import check_not_special
from fedwca.core.process_limits import free_memory
from fedwca.data.dataset import Images, Integers, to_three_channels
from fedwca.errors import DataError

HEADER_ERRORS = (ValueError, TypeError, SyntaxError, tokenize.TokenError)
"""Exceptions that numpy raises for a damaged array header, because it parses headers as Python code."""


@dataclass(frozen=True)
class Archive:
    """Images and annotations of one domain, as one ``.npz`` archive holds them."""

    images: Images
    """``[N, H, W, 3]``"""
    labels: Integers
    """``[N]``"""
    groups: Integers | None = None
    """``[N]``, see `Domain.groups`."""
    classes: tuple[str, ...] | None = None
    """Class names of the labels 0, 1, …; None: the archive names none."""
    part: Integers | None = None
    """``[N]``, see `Domain.part`."""
    units: Integers | None = None
    """``[N]``, see `Domain.units`."""

    def subset(self, positions: Integers) -> Archive:
        """The archive with only the images at ``positions``, in that order."""
        groups, part, units = (
            None if numbers is None else numbers[positions] for numbers in (self.groups, self.part, self.units)
        )
        return Archive(self.images[positions], self.labels[positions], groups, self.classes, part, units)


def join_parts(folder: Path, parts: Sequence[Archive]) -> Archive:
    """Join a training and a test part into one archive whose ``part`` says which image came from which.

    Equal group or unit numbers in the two parts mean the same group or unit.

    Args:
        folder: named in error messages.
        parts: the training part, then the test part.

    Raises:
        DataError: image sizes or class names differ, or only one part has groups or units.
    """
    train, test = parts
    if train.images.shape[1:] != test.images.shape[1:] or train.classes != test.classes:
        raise DataError(f"{folder}: the training and the test part have images of different sizes, or other classes")
    joined = {}
    for key in ("groups", "units"):
        arrays = [numbers for numbers in (getattr(train, key), getattr(test, key)) if numbers is not None]
        if len(arrays) == 1:
            raise DataError(f"{folder}: one of the training and the test part alone says {key}; both or none is right")
        joined[key] = np.concatenate(arrays) if arrays else None
    part = np.repeat(np.arange(2), [len(train.labels), len(test.labels)])
    images, labels = np.concatenate([train.images, test.images]), np.concatenate([train.labels, test.labels])
    return Archive(images, labels, classes=train.classes, part=part, **joined)


def read_npz(path: Path) -> Archive:
    """Read one domain from an archive.

    The keys ``images`` and ``labels`` are required; ``groups``, ``classes``, ``part`` and ``units`` are optional, and
    ``client`` may stand for ``units``. Images are uint8, grey ``[N, H, W]`` (expanded to three equal channels) or
    ``[N, H, W, 3]``; labels, groups, part and units are int64 ``[N]``; classes are names ``[M]``. Other keys are
    ignored. Pickled objects are refused because they could run code.

    Raises:
        DataError: the file is damaged, a required key is missing, or an array has the wrong type or shape; the message
            names the file.
    """
    arrays = read_arrays(path, ("images", "labels", "groups", "classes", "part", "units", "client"))
    if missing_keys := [key for key in ("images", "labels") if key not in arrays]:
        raise DataError(f"{path} lacks {' and '.join(missing_keys)}; it needs the keys images and labels")
    images, labels = _in_color(path, arrays["images"]), arrays["labels"]
    for key in ("labels", "groups", "part", "units"):
        if key in arrays and (arrays[key].dtype != np.int64 or arrays[key].shape != images.shape[:1]):
            raise _wrong(path, key, f"int64 [{len(images)}], one for each image", arrays[key])
    client = arrays.get("client")
    if "units" not in arrays and client is not None and client.dtype.kind in "iu" and client.shape == labels.shape:
        arrays["units"] = client.astype(np.int64)
    names = arrays.get("classes")
    if names is not None and (names.dtype.kind != "U" or names.ndim != 1):
        raise _wrong(path, "classes", "names [M]", names)
    if names is not None and not all(str(name).strip() for name in names):
        raise DataError(f"{path}: classes holds an empty name")
    if names is not None and not len(names):
        raise DataError(f"{path}: classes is empty; it needs a name for each label, or is left out")
    return Archive(
        images,
        labels,
        arrays.get("groups"),
        None if names is None else tuple(str(name) for name in names),
        arrays.get("part"),
        arrays.get("units"),
    )


def read_archive_images(path: Path) -> Images:
    """Read only the images ``[N, H, W, 3]`` of an archive; grey images get three equal channels.

    Raises:
        DataError: the file is damaged, has no images, or they have the wrong type or shape, or no pixels; the message
            names the file.
    """
    images = read_arrays(path, ("images",)).get("images")
    if images is None:
        raise DataError(f"{path} lacks the key images: uint8 [N, H, W] or [N, H, W, 3]")
    images = _in_color(path, images)
    if not images.size:
        raise DataError(f"{path} holds no images; images is {list(images.shape)}")
    return images


def _in_color(path: Path, images: NDArray[Any]) -> Images:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise _wrong(path, "images", "uint8 [N, H, W] or [N, H, W, 3]", images)
    if images.ndim == 3 and images.shape[2] == 3 != images.shape[1]:  # would be read as grey images 3 pixels wide
        raise DataError(f"{path}: images {list(images.shape)} is a single colour image; several are [N, H, W, 3]")
    return to_three_channels(images)


def _wrong(path: Path, key: str, expected: str, array: NDArray[np.generic]) -> DataError:
    return DataError(f"{path}: {key} must be {expected}, not {array.dtype} {list(array.shape)}")


def file_hash(path: Path, algorithm: str) -> str:
    """Hash of a file's content in hex digits, by a name of `hashlib`; an MD5 detects damage but not tampering.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        check_not_special(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def read_arrays(path: Path, keys: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read those of ``keys`` that an archive has; pickled objects are refused.

    Raises:
        DataError: the file is damaged or not an ``.npz`` archive; the message names the file.
    """
    try:
        check_not_special(path)
        # Opened here because numpy does not close a file that it opened itself if the archive is damaged.
        with path.open("rb") as file:
            magic = file.read(6)
            if magic == b"\x93NUMPY":
                raise DataError(f"{path} is a single array, not an .npz archive")
            with zipfile.ZipFile(file) as archive:
                _check_sizes(path, archive, keys)
            file.seek(0)
            npz = np.load(file, allow_pickle=False)
            return {key: npz[key] for key in keys if key in npz.files}
    # zipfile raises RuntimeError for an encrypted member, NotImplementedError for an unknown compression method.
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an .npz archive without pickled objects: {error}") from error


def _check_sizes(path: Path, archive: zipfile.ZipFile, keys: tuple[str, ...]) -> None:
    """Compare the sizes that members declare with their stored sizes and with free memory, before unpacking.

    Raises:
        DataError: a member is not an array, declares another size than is stored, or the arrays do not fit into memory.
    """
    needed = 0
    for member in archive.infolist():
        key = member.filename.removesuffix(".npy")
        if key not in keys:
            continue
        with archive.open(member) as file:
            try:
                version = np.lib.format.read_magic(file)
                read_header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read_header(file)
            except HEADER_ERRORS as error:
                raise DataError(f"{path}: {key} is no array ({error})") from None
            if dtype.hasobject:
                raise DataError(f"{path}: {key} cannot be read without pickled objects, which could run code")
            declared, stored = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if declared != stored:
            raise DataError(f"{path}: {key} declares {declared:,} bytes {list(shape)}, and {stored:,} are there")
        needed += declared * (3 if key == "images" and len(shape) == 3 else 1)  # grey ones become three channels
    check_fits_memory(path, needed)


def check_fits_memory(path: Path, needed: int) -> None:
    """Check, before a file is unpacked, that its content fits into memory.

    Args:
        path: the file.
        needed: size of its content in bytes.

    Raises:
        DataError: it does not fit; the message says how much is free.
    """
    free = free_memory()
    if free is not None and needed > free:
        available = f"{free / 2**30:.1f} GiB of memory are free"
        raise DataError(f"{path} takes {needed / 2**30:.1f} GiB unpacked, and {available}")
