"""How much main memory a process may still take: what the machine has free, within limits of control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

MACHINE = Path("/proc/meminfo")
OWN_GROUPS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""Which control groups this process is in, and the folders of all, whose files say what a container or job may take."""


def free_memory() -> int | None:
    """Bytes of main memory that this process may still take; None where the system does not say."""
    available = list(_left_in_groups())
    if MACHINE.exists():
        lines = dict(line.split(":") for line in MACHINE.read_text().splitlines())
        available.append(1024 * int(lines["MemAvailable"].split()[0]))
    return min(available, default=None)


def _left_in_groups() -> Iterator[int]:
    """Bytes that the limit of each control group around this process leaves; those without a limit are passed over."""
    for folder, limit_name, used_name, dropped in _group_folders():
        limit, used, statistics = (folder / name for name in (limit_name, used_name, "memory.stat"))
        if limit.exists() and used.exists() and limit.read_text().strip() != "max":
            # Cached files count as used, but are dropped when memory is needed.
            counts = dict(line.split() for line in statistics.read_text().splitlines())
            yield int(limit.read_text()) - int(used.read_text()) + int(counts.get(dropped, 0))


def _group_folders() -> Iterator[tuple[Path, str, str, str]]:
    """Folders of this process's groups and of those above, with the names of the limit, of what is used and is dropped.

    A container sees its own group as the topmost one; a job of a scheduler, such as Slurm's, is below it.
    """
    groups = OWN_GROUPS.read_text().splitlines() if OWN_GROUPS.exists() else []
    for controllers, path in (line.split(":", 2)[1:] for line in groups):
        if not controllers:  # version 2
            top, names = GROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):  # version 1
            top, names = GROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        below = Path(path.lstrip("/"))
        for folder in (below, *below.parents):
            yield (top / folder, *names)
