"""A process that ends with the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedwca.deploy.flower.follow_parent import watch_parent

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps the number of a parent that has ended")

CHILD = """
import os, sys, time
from pathlib import Path
from fedwca.deploy.flower import follow_parent

def end():
    Path(sys.argv[1], "told").touch()
    os._exit(3)

follow_parent.LOOK = 0.01
with follow_parent.watch_parent(end):
    Path(sys.argv[1], "ready").touch()
    time.sleep(60)
"""


def test_a_parent_that_ends_is_noticed(tmp_path: Path) -> None:
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {CHILD!r}, sys.argv[1]]); input()"
    with subprocess.Popen([sys.executable, "-c", parent, str(tmp_path)], stdin=subprocess.PIPE) as process:
        for name in ("ready", "told"):
            for _ in range(3000):
                if (tmp_path / name).exists():
                    break
                time.sleep(0.01)
            process.kill()
            assert (tmp_path / name).exists()


def test_nothing_is_noticed_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed: list[int] = []
    monkeypatch.setattr("fedwca.deploy.flower.follow_parent.LOOK", 0.01)
    with watch_parent(lambda: noticed.append(1)):
        time.sleep(0.05)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    time.sleep(0.05)
    assert noticed == []
