"""Read the JSON files of LEAF, which hold images by user."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedwca.core.input_files import check_not_special
from fedwca.data.archives import Archive
from fedwca.data.dataset import to_three_channels
from fedwca.errors import DataError


def read_leaf_parts(folder: Path, parts: Sequence[Sequence[Path]]) -> Archive:
    """Read the grey square images of all users; units number the users in the order of their names.

    Args:
        folder: named in error messages.
        parts: files of the training part, then of the test part; without files of the second, images have no part.

    Raises:
        DataError: a file is damaged or not a LEAF file, or images are missing or differ in size; the message names it.
    """
    images, labels, users, part = [], [], [], []
    for number, files in enumerate(parts):
        for file in files:
            for user, x, y in _read_users(file):
                images.append(x)
                labels.append(y)
                users += [user] * len(y)
                part += [number] * len(y)
    if not images:
        raise DataError(f"{folder}: no user of LEAF's files has an image")
    if len({pixels.shape[1:] for pixels in images}) > 1:
        raise DataError(f"{folder}: users of LEAF's files have images of different sizes")
    _, units = np.unique(users, return_inverse=True)
    return Archive(
        to_three_channels(np.concatenate(images)),
        np.concatenate(labels),
        part=np.array(part, np.int64) if parts[1] else None,
        units=units.astype(np.int64),
    )


def _read_users(file: Path) -> list[tuple[str, Any, Any]]:
    try:
        check_not_special(file)
        content = json.loads(file.read_text(encoding="utf-8"))
        users = []
        for user in content["users"]:
            x = np.asarray(content["user_data"][user]["x"], np.float64)
            y = np.asarray(content["user_data"][user]["y"])
            if len(y) and (y.dtype.kind not in "iuf" or not np.isfinite(y).all() or (y != np.rint(y)).any()):
                raise ValueError(f"user {user!r} needs labels that are whole numbers")
            y = y.astype(np.int64)
            side = math.isqrt(x.shape[1]) if len(x) else 0
            if len(x) != len(y) or (len(x) and side**2 != x.shape[1]) or (len(x) and not 0 <= x.min() <= x.max() <= 1):
                raise ValueError(f"user {user!r} needs one label for each row x of side² numbers from 0 to 1")
            if len(x):
                users.append((str(user), np.rint(x * 255).astype(np.uint8).reshape(-1, side, side), y))
        return users
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise DataError(f"{file} is none of LEAF's files with users and user_data: {error}") from error
