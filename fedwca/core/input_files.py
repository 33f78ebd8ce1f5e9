"""Checks before a file that a user names is read: that it is no pipe or device, and how much memory is free."""

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


def free_memory() -> int | None:
    """Bytes of main memory that this process may still take; None where the system does not say."""
    available = []
    info = Path("/proc/meminfo")
    if info.exists():
        lines = dict(line.split(":") for line in info.read_text().splitlines())
        available.append(1024 * int(lines["MemAvailable"].split()[0]))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        # Cached files count as used, but are dropped when memory is needed.
        statistics = dict(line.split() for line in limit.with_name("memory.stat").read_text().splitlines())
        available.append(int(limit.read_text()) - int(used.read_text()) + int(statistics.get("inactive_file", 0)))
    return min(available) if available else None
