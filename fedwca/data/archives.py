"""``.npz`` archives: one domain each, checked as they are read."""

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

from fedwca.core.input_files import check_not_special, free_memory
from fedwca.data.dataset import Images, Integers
from fedwca.errors import DataError

HEADER_ERRORS = (ValueError, TypeError, SyntaxError, tokenize.TokenError)
"""What numpy raises for a header that is damaged: it parses it as Python."""


@dataclass(frozen=True)
class Archive:
    """What one ``.npz`` holds."""

    images: Images
    """``[N, H, W, 3]``"""
    labels: Integers
    """``[N]``"""
    groups: Integers | None = None
    """``[N]``, see `Domain.groups`."""
    classes: tuple[str, ...] | None = None
    """Names of the labels 0, 1, …"""
    part: Integers | None = None
    """``[N]``, see `Domain.part`."""
    units: Integers | None = None
    """``[N]``, see `Domain.units`."""

    def subset(self, kept: Integers) -> Archive:
        """Only the images at some positions, in that order."""
        groups, part, units = (
            None if numbers is None else numbers[kept] for numbers in (self.groups, self.part, self.units)
        )
        return Archive(self.images[kept], self.labels[kept], groups, self.classes, part, units)


def join_parts(folder: Path, parts: Sequence[Archive]) -> Archive:
    """A training and a test part as one archive that says which image is of which.

    A number of a group or unit means the same one in both.

    Args:
        folder: shown in errors.
        parts: the training part, then the test part.

    Raises:
        DataError: their images are of different sizes, their classes differ, or one alone says groups or units.
    """
    train, test = parts
    if train.images.shape[1:] != test.images.shape[1:] or train.classes != test.classes:
        raise DataError(f"{folder}: the training and the test part have images of different sizes, or other classes")
    joined = {}
    for key in ("groups", "units"):
        said = [numbers for numbers in (getattr(train, key), getattr(test, key)) if numbers is not None]
        if len(said) == 1:
            raise DataError(f"{folder}: one of the training and the test part alone says {key}; both or none is right")
        joined[key] = np.concatenate(said) if said else None
    part = np.repeat(np.arange(2), [len(train.labels), len(test.labels)])
    images, labels = np.concatenate([train.images, test.images]), np.concatenate([train.labels, test.labels])
    return Archive(images, labels, classes=train.classes, part=part, **joined)


def read_npz(path: Path) -> Archive:
    """One domain from an archive with ``images`` and ``labels``, and where it has them ``groups``, ``classes``,
    ``part`` and ``units``, which may be called ``client``.

    Images are uint8, ``[N, H, W]`` grey (becomes three equal channels) or ``[N, H, W, 3]``; labels, groups, part and
    units int64 ``[N]``; classes are names ``[M]``. Other keys are ignored. Pickled objects are refused: they could run
    code.

    Raises:
        DataError: the file is damaged, lacks a key, or one has another type or shape; the message names the file.
    """
    arrays = read_arrays(path, ("images", "labels", "groups", "classes", "part", "units", "client"))
    if lacks := [key for key in ("images", "labels") if key not in arrays]:
        raise DataError(f"{path} lacks {' and '.join(lacks)}; it needs the keys images and labels")
    images, labels = _in_color(path, arrays["images"]), arrays["labels"]
    for key in ("labels", "groups", "part", "units"):
        if key in arrays and (arrays[key].dtype != np.int64 or arrays[key].shape != images.shape[:1]):
            raise _wrong(path, key, f"int64 [{len(images)}], one for each image", arrays[key])
    client = arrays.get("client")
    if "units" not in arrays and client is not None and client.dtype == np.int64 and client.shape == labels.shape:
        arrays["units"] = client
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
    """Images alone ``[N, H, W, 3]`` of an archive that may hold more, grey ones in three equal channels.

    Raises:
        DataError: the file is damaged, has no images, or they are of another type or shape; the message names it.
    """
    images = read_arrays(path, ("images",)).get("images")
    if images is None:
        raise DataError(f"{path} lacks the key images: uint8 [N, H, W] or [N, H, W, 3]")
    return _in_color(path, images)


def _in_color(path: Path, images: NDArray[Any]) -> Images:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise _wrong(path, "images", "uint8 [N, H, W] or [N, H, W, 3]", images)
    return np.repeat(images[..., None], 3, axis=3) if images.ndim == 3 else images


def _wrong(path: Path, key: str, right: str, given: NDArray[np.generic]) -> DataError:
    return DataError(f"{path}: {key} must be {right}, not {given.dtype} {list(given.shape)}")


def file_md5(path: Path) -> str:
    """MD5 of a file's content, 32 hex digits; it finds damage, not malice.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        check_not_special(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def read_arrays(path: Path, keys: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Those of ``keys`` that an archive has; pickled objects are refused.

    Raises:
        DataError: the file is damaged or is no archive; the message names it.
    """
    try:
        check_not_special(path)
        # Opened here, because numpy leaves its own file open where it finds the archive damaged.
        with path.open("rb") as file:
            magic = file.read(6)
            if magic == b"\x93NUMPY":
                raise DataError(f"{path} is a single array, not an .npz archive")
            with zipfile.ZipFile(file) as archive:
                _check_sizes(path, archive, keys)
            file.seek(0)
            found = np.load(file, allow_pickle=False)
            return {key: found[key] for key in keys if key in found.files}
    # zipfile raises RuntimeError for an encrypted member, NotImplementedError for one packed in a way it does not know.
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an .npz archive without pickled objects: {error}") from error


def _check_sizes(path: Path, archive: zipfile.ZipFile, keys: tuple[str, ...]) -> None:
    """Compare what the members declare with what is there and what memory is free, before anything is unpacked.

    Raises:
        DataError: a member is no array, declares another size than it has, or all together do not fit into memory.
    """
    wanted = 0
    for member in archive.infolist():
        key = member.filename.removesuffix(".npy")
        if key not in keys:
            continue
        with archive.open(member) as file:
            try:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            except HEADER_ERRORS as error:
                raise DataError(f"{path}: {key} is no array ({error})") from None
            if dtype.hasobject:
                raise DataError(f"{path}: {key} cannot be read without pickled objects, which could run code")
            declared, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if declared != there:
            raise DataError(f"{path}: {key} declares {declared:,} bytes {list(shape)}, and {there:,} are there")
        wanted += declared * (3 if key == "images" and len(shape) == 3 else 1)  # grey ones become three channels
    free = free_memory()
    if free is not None and wanted > free:
        has = f"{free / 2**30:.1f} GiB of memory are free"
        raise DataError(f"{path} takes {wanted / 2**30:.1f} GiB unpacked, and {has}")
