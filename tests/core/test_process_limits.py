"""Cores and memory of a process, by files as Linux has them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedwca.core import process_limits as module

Lay = Callable[[dict[str, str]], None]


@pytest.fixture
def lay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lay:
    """Writes files of a system by path; the library reads those."""
    monkeypatch.setattr(module, "MEMORY", tmp_path / "proc" / "meminfo")
    monkeypatch.setattr(module, "OWN_GROUPS", tmp_path / "proc" / "self" / "cgroup")
    monkeypatch.setattr(module, "GROUPS", tmp_path / "groups")

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return write


def machine(kilobytes: int) -> dict[str, str]:
    return {"proc/meminfo": f"MemTotal: 9000 kB\nMemAvailable: {kilobytes} kB\n"}


def version_2(folder: str, limit: str) -> dict[str, str]:
    """A group that uses 1,000,000 bytes, of which 500,000 can be dropped."""
    texts = {"max": limit, "current": "1000000", "stat": "anon 500000\ninactive_file 500000"}
    return {f"groups/{folder}memory.{name}": f"{text}\n" for name, text in texts.items()}


@pytest.mark.parametrize(
    ("available", "limit", "free"),
    [(4000, "3000000", 2_500_000), (1000, "3000000", 1_024_000), (4000, "max", 4_096_000)],
    ids=["of the container", "of the machine", "no limit"],
)
def test_free_is_the_less_of_machine_and_container(lay: Lay, available: int, limit: str, free: int) -> None:
    lay({**machine(available), "proc/self/cgroup": "0::/\n", **version_2("", limit)})
    assert module.free_memory() == free


def test_the_narrowest_group_around_the_process_counts(lay: Lay) -> None:
    """As in a job of Slurm, whose limit is set some groups above the process, and in none at the top."""
    groups = {**version_2("slurm/job_7/", "2000000"), **version_2("slurm/job_7/step_0/", "max")}
    lay({**machine(4000), "proc/self/cgroup": "0::/slurm/job_7/step_0/task_0\n", **groups})
    lay(version_2("slurm/", "3000000"))
    lay(version_2("slurm/job_8/", "1000001"))  # a neighbour
    assert module.free_memory() == 1_500_000


def test_groups_of_version_1(lay: Lay) -> None:
    texts = {"limit_in_bytes": "2000000", "usage_in_bytes": "1000000", "stat": "cache 9\ntotal_inactive_file 250000"}
    lay({f"groups/memory/memory.{name}": f"{text}\n" for name, text in texts.items()})
    lay({**machine(4000), "proc/self/cgroup": "5:cpu,cpuacct:/other\n4:memory:/docker/0af:7\n0::/\n"})
    assert module.free_memory() == 1_250_000


def test_nothing_is_said_where_the_system_says_nothing(lay: Lay) -> None:
    lay({})
    assert module.free_memory() is None
    lay({"proc/meminfo": "MemTotal: 9000 kB\nMemFree: 4000 kB\n"})  # as in the Linux of Windows, WSL 1
    assert module.free_memory() is None
    assert module.available_cores() >= 1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"proc/self/cgroup": "0::/", "groups/cpu.max": "200000 100000"}, 2),
        ({"proc/self/cgroup": "0::/", "groups/cpu.max": "150000 100000"}, 2),
        ({"proc/self/cgroup": "0::/", "groups/cpu.max": "1000 100000"}, 1),
        ({"proc/self/cgroup": "0::/", "groups/cpu.max": "max 100000"}, 8),
        ({"proc/self/cgroup": "0::/", "groups/cpu.max": "6400000 100000"}, 8),
        ({"proc/self/cgroup": "0::/a/b", "groups/a/cpu.max": "300000 100000", "groups/a/b/cpu.max": "max 100000"}, 3),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/7",
                "groups/cpu/cpu.cfs_quota_us": "400000",
                "groups/cpu/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/",
                "groups/cpu/cpu.cfs_quota_us": "-1",
                "groups/cpu/cpu.cfs_period_us": "100000",
            },
            8,
        ),
    ],
)
def test_cores_are_those_of_the_limit_on_processor_time(
    lay: Lay, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    """As of `docker run --cpus`, which leaves all cores of the machine in sight."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    lay(files)
    assert module.available_cores() == cores
