"""How much memory a device has left."""

from __future__ import annotations

from pathlib import Path

import torch


def free_bytes(device: str) -> int | None:
    """Bytes that a process may still take on a device; None where the system does not say."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = []
    info = Path("/proc/meminfo")
    if info.exists():
        lines = dict(line.split(":") for line in info.read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        # Cached files count as used, but go when memory is wanted.
        stat = dict(line.split() for line in limit.with_name("memory.stat").read_text().splitlines())
        found.append(int(limit.read_text()) - int(used.read_text()) + int(stat.get("inactive_file", 0)))
    return min(found) if found else None
