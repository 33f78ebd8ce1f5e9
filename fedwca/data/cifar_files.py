"""Read the binary version of CIFAR: records of label bytes and pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fedwca.core.input_files import check_not_special
from fedwca.data.archives import Archive, join_parts
from fedwca.errors import DataError


def find_record_parts(folder: Path, files: Sequence[Sequence[str]], label_bytes: int) -> Callable[[], Archive] | None:
    """Find CIFAR's binary files of both parts.

    A record is ``label_bytes`` bytes of labels, then 3 × 32 × 32 pixels. The last label is the class; the first of
    several is the unit.

    Args:
        folder: holds the files.
        files: file names of the training part, then of the test part.
        label_bytes: label bytes of each record.

    Returns:
        A function that reads images and labels, and raises `DataError` if a file is damaged; None if one is missing.
    """
    if not all((folder / name).is_file() for part in files for name in part):
        return None
    return partial(_read_record_parts, folder, files, label_bytes)


def _read_record_parts(folder: Path, files: Sequence[Sequence[str]], label_bytes: int) -> Archive:
    parts = []
    for part in files:
        records = []
        for name in part:
            try:
                check_not_special(folder / name)
                content = np.fromfile(folder / name, np.uint8)
            except OSError as error:
                raise DataError(f"{folder / name} cannot be read: {error.strerror or error}") from error
            if not len(content) or len(content) % (label_bytes + 3072):
                raise DataError(
                    f"{folder / name} is damaged: {len(content):,} bytes are no whole number of records of "
                    f"{label_bytes + 3072}"
                )
            records.append(content.reshape(-1, label_bytes + 3072))
        all_records = np.concatenate(records)
        images = np.ascontiguousarray(all_records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        units = all_records[:, 0].astype(np.int64) if label_bytes > 1 else None
        parts.append(Archive(images, all_records[:, label_bytes - 1].astype(np.int64), units=units))
    return join_parts(folder, parts)
