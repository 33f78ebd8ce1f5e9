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


def test_a_rehearsal_writes_a_file_for_each_piece_and_checks_the_engines(tmp_path: Path) -> None:
    done = run("parity", "beside_plain", "--device", "cpu", "--small", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = {file.stem: json.loads(file.read_text()) for file in tmp_path.iterdir()}
    assert found.keys() == {"parity", "beside_plain"}
    assert found["parity"]["met"]
    assert found["parity"]["small"]
    assert found["beside_plain"]["times_as_fast"] > 0
    assert all(result["environment"]["device"] == "cpu" for result in found.values())


def test_a_rehearsal_is_no_result() -> None:
    done = run("parity", "--device", "cpu", "--small")
    assert done.returncode == 2
    assert "give it an --out of its own" in done.stderr
