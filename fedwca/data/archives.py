"""``.npz`` archives: one domain each, checked as they are read."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwca.data.dataset import Images, Integers
from fedwca.errors import DataError


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

    def subset(self, kept: Integers) -> Archive:
        """Only the images at some positions, in that order."""
        groups = None if self.groups is None else self.groups[kept]
        part = None if self.part is None else self.part[kept]
        return Archive(self.images[kept], self.labels[kept], groups, self.classes, part)


def read_npz(path: Path) -> Archive:
    """One domain from an archive with ``images`` and ``labels``, and where it has them ``groups``, ``classes``
    and ``part``.

    Images are uint8, ``[N, H, W]`` grey (becomes three equal channels) or ``[N, H, W, 3]``; labels, groups and part
    int64 ``[N]``; classes are names ``[M]``. Other keys are ignored. Pickled objects are refused: they could run code.

    Raises:
        DataError: the file is damaged, lacks a key, or one has another type or shape; the message names the file.
    """
    found = read_arrays(path, ("images", "labels", "groups", "classes", "part"))
    if lacks := [key for key in ("images", "labels") if key not in found]:
        raise DataError(f"{path} lacks {' and '.join(lacks)}; it needs the keys images and labels")
    images, labels = found["images"], found["labels"]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise _wrong(path, "images", "uint8 [N, H, W] or [N, H, W, 3]", images)
    for key in ("labels", "groups", "part"):
        if key in found and (found[key].dtype != np.int64 or found[key].shape != images.shape[:1]):
            raise _wrong(path, key, f"int64 [{len(images)}], one for each image", found[key])
    names = found.get("classes")
    if names is not None and (names.dtype.kind != "U" or names.ndim != 1):
        raise _wrong(path, "classes", "names [M]", names)
    if names is not None and not all(str(name).strip() for name in names):
        raise DataError(f"{path}: classes holds an empty name")
    if names is not None and not len(names):
        raise DataError(f"{path}: classes is empty; it needs a name for each label, or is left out")
    return Archive(
        np.repeat(images[..., None], 3, axis=3) if images.ndim == 3 else images,
        labels,
        found.get("groups"),
        None if names is None else tuple(str(name) for name in names),
        found.get("part"),
    )


def _wrong(path: Path, key: str, right: str, given: NDArray[np.generic]) -> DataError:
    return DataError(f"{path}: {key} must be {right}, not {given.dtype} {list(given.shape)}")


def file_md5(path: Path) -> str:
    """MD5 of a file's content, 32 hex digits; it finds damage, not malice.

    Raises:
        DataError: the file cannot be read.
    """
    try:
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
        # Opened here, because numpy leaves its own file open where it finds the archive damaged.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is a single array, not an .npz archive")
            return {key: archive[key] for key in keys if key in archive.files}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an .npz archive without pickled objects: {error}") from error
