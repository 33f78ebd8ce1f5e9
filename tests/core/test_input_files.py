"""How much memory is free, by files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedwca.core import input_files


@pytest.mark.parametrize(
    ("available", "limit", "free"),
    [
        (4000, "3000000", 2_500_000),  # of the container: 3,000,000 - 1,000,000 used, of which 500,000 can be dropped
        (1000, "3000000", 1_024_000),  # the machine has less
        (4000, "max", 4_096_000),
    ],
)
def test_free_memory_is_the_less_of_machine_and_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, available: int, limit: str, free: int
) -> None:
    files = {
        "proc/meminfo": f"MemTotal: 9000 kB\nMemAvailable: {available} kB\n",
        "sys/fs/cgroup/memory.max": f"{limit}\n",
        "sys/fs/cgroup/memory.current": "1000000\n",
        "sys/fs/cgroup/memory.stat": "anon 500000\ninactive_file 500000\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(input_files, "Path", lambda name: tmp_path / name.removeprefix("/"))
    assert input_files.free_memory() == free
