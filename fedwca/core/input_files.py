"""What is looked at before a file that a user names is read: that it is one, and that it fits into memory."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


def check_not_special(path: Path) -> None:
    """See that a path is no pipe, device or socket: reading one may never end.

    Raises:
        OSError: it is; or there is nothing.
    """
    kind = KINDS.get(stat.S_IFMT(path.stat().st_mode))
    if kind is not None:
        raise OSError(errno.EINVAL, f"is {kind}, not a file", str(path))


def free_memory() -> int | None:
    """Bytes of main memory that a process may still take; None where the system does not say."""
    found = []
    info = Path("/proc/meminfo")
    if info.exists():
        lines = dict(line.split(":") for line in info.read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        # Cached files count as used, but go when memory is wanted.
        counts = dict(line.split() for line in limit.with_name("memory.stat").read_text().splitlines())
        found.append(int(limit.read_text()) - int(used.read_text()) + int(counts.get("inactive_file", 0)))
    return min(found) if found else None
