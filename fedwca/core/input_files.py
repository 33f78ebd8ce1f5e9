"""Checks before a file that a user names is read: that it is no pipe or device."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


def check_not_special(path: Path) -> None:
    """Refuse a path that is a pipe, device or socket: reading one may never end.

    Raises:
        OSError: the path is one of these, or does not exist.
    """
    kind = KINDS.get(stat.S_IFMT(path.stat().st_mode))
    if kind is not None:
        raise OSError(errno.EINVAL, f"is {kind}, not a file", str(path))
