"""What this process may use of the machine: cores and main memory, within limits of its control groups.

A container sees its own control group as the topmost one; that of a scheduler's job, such as Slurm's, is below the top.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/proc/meminfo")
OWN_GROUPS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""Which control groups this process is in, and the folder of all of them."""


def available_cores() -> int:
    """Cores that this process may use: those it may run on, or the processor time of as many, rounded up, if less."""
    affinity = getattr(os, "sched_getaffinity", None)
    return min([len(affinity(0)) if affinity else os.cpu_count() or 1, *_cores_in_groups()])


def free_memory() -> int | None:
    """Bytes of main memory that this process may still take; None where the system does not say."""
    available = list(_memory_in_groups())
    if kilobytes := re.search(r"^MemAvailable: *(\d+)", _read(MEMORY), re.MULTILINE):
        available.append(1024 * int(kilobytes[1]))
    return min(available, default=None)


def _cores_in_groups() -> Iterator[int]:
    """Cores' worth of processor time that the limit of each control group allows."""
    for folder, version in _own_groups("cpu"):
        if version == 1:
            quota, period = (_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        else:
            quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdecimal():  # not -1 or max, which are no limit
            yield max(1, math.ceil(int(quota) / int(period)))


def _memory_in_groups() -> Iterator[int]:
    """Bytes that the limit of each control group leaves."""
    for folder, version in _own_groups("memory"):
        names = ("limit_in_bytes", "usage_in_bytes", "total_") if version == 1 else ("max", "current", "")
        limit, used = (_read(folder / f"memory.{name}") for name in names[:2])
        if limit.isdecimal() and used.isdecimal():
            # Cached files count as used, but are dropped when memory is needed.
            counts = dict(line.split() for line in _read(folder / "memory.stat").splitlines())
            yield int(limit) - int(used) + int(counts.get(f"{names[2]}inactive_file", 0))


def _own_groups(controller: str) -> Iterator[tuple[Path, int]]:
    """Folders of this process's groups and of those above, with the version of control groups, 1 or 2."""
    for line in _read(OWN_GROUPS).splitlines():
        controllers, path = line.split(":", 2)[1:]
        if controller in controllers.split(",") or not controllers:
            top, version = (GROUPS / controller, 1) if controllers else (GROUPS, 2)
            below = Path(path.lstrip("/"))
            yield from ((top / folder, version) for folder in (below, *below.parents))


def _read(file: Path) -> str:
    """The text of a file; empty if it cannot be read, as that of a group which others may not see."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
