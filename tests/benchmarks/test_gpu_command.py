"""The command for GPU measurements, rehearsed on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .scripts import BENCHMARKS


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), *arguments], capture_output=True, text=True, check=False
    )


def test_a_rehearsal_writes_a_file_and_checks_the_engines(tmp_path: Path) -> None:
    done = run("parity", "--device", "cpu", "--small", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    found = json.loads(file.read_text())
    assert file.name == "parity.json"
    assert found["met"]
    assert found["small"]
    assert found["environment"]["device"] == "cpu"


def test_a_rehearsal_is_no_result() -> None:
    done = run("parity", "--device", "cpu", "--small")
    assert done.returncode == 2
    assert "give it an --out of its own" in done.stderr
