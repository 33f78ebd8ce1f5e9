"""Read image folders ``<domain>/<class>/<image>``: decode them once, then read them from a cache."""

from __future__ import annotations

import contextlib
import hashlib
import mimetypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from fedwca.core.files import write_atomically
from fedwca.data.archives import HEADER_ERRORS
from fedwca.data.cache import cache_dir
from fedwca.data.dataset import DatasetWarning, Images, Integers, sorted_classes
from fedwca.data.image_files import DECODER, SUFFIXES, decode_image
from fedwca.errors import DataError
from fedwca.warn_caller import warn_caller

SHOWN = 5
"""Images that do not decode whose reasons an error gives."""
SLICE = 1024
"""Images decoded before they are written to disk: a data set may be larger than memory."""


def is_hidden(path: Path) -> bool:
    """Whether a path has a hidden name, or one that systems leave behind: ``.DS_Store``, ``__MACOSX``."""
    return path.name.startswith(".") or path.name in ("__MACOSX", "__pycache__")


def list_files_below(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, at any depth, sorted by name within each folder.

    Hidden files and folders are left out. Linked folders come last, and no folder is visited twice.

    Raises:
        DataError: a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}")

    seen, pending = set(), [folder]
    while pending:
        linked = []
        for directory, folders, files in os.walk(pending.pop(0), onerror=refuse):
            if (real := os.path.realpath(directory)) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not is_hidden(Path(name)))
            linked += [path for name in folders if (path := Path(directory, name)).is_symlink()]
            yield from (Path(directory, name) for name in sorted(files) if not is_hidden(Path(name)))
        pending += linked


def read_image_folder(path: Path, size: int, stretch: bool = False) -> tuple[Images, Integers, None, tuple[str, ...]]:
    """Read one domain: images ``[N, size, size, 3]``, labels ``[N]``, no groups, and classes as in `sorted_classes`.

    Each file is rotated by its EXIF orientation, converted to RGB (transparent parts become white), resized until its
    shorter side is ``size`` (bilinear, antialiased) and cropped around its centre; with ``stretch`` it is resized to
    ``size`` pixels wide and high without a crop. Hidden files and files without the suffix of an image are ignored.
    The result is cached under `fedwca.data.cache_dir`, keyed by every file's path, length and modification time, and
    read through a memory map: images that are never accessed take no memory.

    Raises:
        DataError: there is no image, or one does not decode; the message names the folder or the file.
    """
    files, classes = list_image_files(path)
    if not files:
        raise DataError(f"{path} holds no images; its layout should be {path.name}/<class>/<image>")
    if unread := list_unread(path, classes):
        what = "1 file or folder is" if len(unread) == 1 else f"{len(unread)} files or folders are"
        warn_caller(
            f"{path}: {what} not read, such as {unread[0].relative_to(path).as_posix()}; "
            f"what is read is <class>/<image> with the suffixes {', '.join(sorted(SUFFIXES))}",
            DatasetWarning,
        )
    images = decode_cached(path, [file for file, _ in files], size, stretch)
    return images, np.array([label for _, label in files], np.int64), None, classes


def list_image_files(path: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """List the image files of one domain ``<domain>/<class>/<image>`` with their labels, and its classes."""
    classes = sorted_classes(folder.name for folder in path.iterdir() if folder.is_dir() and not is_hidden(folder))
    files = [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((path / name).iterdir(), key=lambda file: file.name)  # paths of Windows ignore case
        if file.suffix.lower() in SUFFIXES and not is_hidden(file) and file.is_file()
    ]
    return files, classes


def list_unread(path: Path, classes: Sequence[str]) -> list[Path]:
    """List what `list_image_files` skips although a user may expect it to be read; hidden names are left out.

    These are, inside class folders, sub-folders, images of unsupported formats and links that lead nowhere, and, beside
    them, all images.
    """
    files_beside = [file for file in sorted(path.iterdir()) if not is_hidden(file) and not file.is_dir()]
    entries = (file for name in classes for file in sorted((path / name).iterdir()) if not is_hidden(file))
    unread = (file for file in entries if file.suffix.lower() not in SUFFIXES or not file.is_file())
    return [
        *(file for file in unread if file.is_dir() or is_image(file)),
        *(file for file in files_beside if is_image(file)),
    ]


def is_image(file: Path) -> bool:
    """Whether a file's name ends like an image's, of a format that is read or another one."""
    return file.suffix.lower() in SUFFIXES or (mimetypes.guess_type(file)[0] or "").startswith("image/")


def decode_cached(folder: Path, files: list[Path], size: int, stretch: bool = False) -> Images:
    """Images of files below a folder ``[N, size, size, 3]``, decoded once and memory-mapped from the cache.

    See `read_image_folder` for how files become pixels, and for the cache.

    Raises:
        DataError: files do not decode; the message names the first of them.
    """
    shape = f"{size}{'-stretched' * stretch}"
    cached = cache_dir() / "folders" / f"{shorten_name(folder.name)}-{shape}-{digest_listing(folder, files)}.npy"
    return decode_with_cache(cached, len(files), size, lambda start, stop: _decoded(files[start:stop], size, stretch))


def shorten_name(name: str) -> str:
    """The first 80 bytes of a folder's name, for the name of a cache file, whose length file systems bound."""
    return os.fsencode(name)[:80].decode(errors="ignore")


def decode_with_cache(cached: Path, count: int, size: int, decode: Callable[[int, int], Images]) -> Images:
    """Images ``[count, size, size, 3]``, memory-mapped from a cache file, which is written first if it is not there.

    Args:
        cached: the cache file; its name must identify everything that decides its content.
        count: number of images.
        size: height and width in pixels.
        decode: decodes the images from a start up to a stop; called for a slice at a time, which bounds memory.
    """
    images = _cached(cached, count, size)
    if images is None:
        with contextlib.suppress(OSError):  # on a full or read-only disk, images are decoded anew each time
            write_atomically(cached, lambda temporary: _write_decoded(temporary, count, size, decode))
        images = _cached(cached, count, size)  # also where another process wrote it meanwhile
    return decode(0, count) if images is None else images


def digest_listing(path: Path, files: Iterable[Path]) -> str:
    """Digest of a folder's resolved path and of the path, length and modification time of files in it: 32 hex digits.

    Raises:
        OSError: a file is not there.
    """
    sha = hashlib.sha256(os.fsencode(f"{DECODER}\0{path.resolve()}\0"))
    for file in files:
        stat = file.stat()
        sha.update(os.fsencode(f"{file.relative_to(path).as_posix()}\0{stat.st_size}\0{stat.st_mtime_ns}\n"))
    return sha.hexdigest()[:32]


def _cached(path: Path, count: int, size: int) -> Images | None:
    """The cached images; None if the cache file is missing or damaged, since it can be written again."""
    if not path.is_file():
        return None
    try:
        # Copy on write: pages are read from the file, and no write to the array changes it.
        images: Images = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, EOFError, *HEADER_ERRORS):
        return None
    return images if images.shape == (count, size, size, 3) and images.dtype == np.uint8 else None


def _write_decoded(path: Path, count: int, size: int, decode: Callable[[int, int], Images]) -> None:
    """Write what `numpy.save` would write, a slice at a time."""
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, size, size, 3)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, count, SLICE):
            file.write(decode(start, min(start + SLICE, count)).data)


def _decoded(files: list[Path], size: int, stretch: bool) -> Images:
    return decode_all([partial(decode_image, file, size, stretch) for file in files], size)


def decode_all(decoders: Sequence[Callable[[], Images]], size: int) -> Images:
    """Decode images ``[N, size, size, 3]`` on several threads (Pillow releases the interpreter lock).

    Raises:
        DataError: some do not decode; the message is that of the first, and counts the others.
    """
    images = np.empty((len(decoders), size, size, 3), np.uint8)

    def decode_into(index: int) -> DataError | None:
        try:
            images[index] = decoders[index]()
        except DataError as error:
            return error
        return None

    with ThreadPoolExecutor() as pool:
        failures = [error for error in pool.map(decode_into, range(len(decoders))) if error is not None]
    if len(failures) > 1:
        more = "; ".join(str(error) for error in failures[1:SHOWN])
        rest = f", and {len(failures) - SHOWN:,} more" if len(failures) > SHOWN else ""
        raise DataError(f"{len(failures):,} images do not decode: {failures[0]}; {more}{rest}") from failures[0]
    if failures:
        raise failures[0]
    return images
