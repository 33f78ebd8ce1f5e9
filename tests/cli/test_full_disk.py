"""A full disk or an output that takes nothing ends in a sentence that says what was kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from fedwca.core import tensor_files

from .conftest import Run, call

FULL = Path("/dev/full")
FULL_STREAM = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


class Full:
    """A stream that takes nothing."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def test_a_full_disk_leaves_no_empty_folder(plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(tensor_files, "save_file", full)
    monkeypatch.chdir(tmp_path)
    run = call("export", str(plain.folder), "--client", "0", "--out", "deep/er/m.safetensors")
    assert run.code == 1
    assert run.err.startswith("Error: ")
    assert "No space left on device" in run.err
    assert "unexpected" not in run.err
    assert not (tmp_path / "deep").exists()


def test_the_table_that_cannot_be_printed_is_not_lost(
    plain: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedwca.cli import run

    monkeypatch.setattr(sys, "stdout", Full())
    code = run(["resume", str(plain.folder), "--json"])
    assert code == 1
    said = capsys.readouterr().err
    assert "the output cannot be written (No space left on device); the run is whole, its results are in " in said
    assert str(plain.folder) in said
    assert run(["list"]) == 1
    assert "Error: the output cannot be written (No space left on device)" in capsys.readouterr().err


@FULL_STREAM
@pytest.mark.parametrize("words", [["list"], ["show", "aggregator", "wca"], ["runs", "--root", "nowhere", "--json"]])
def test_nothing_is_said_twice_at_the_end(words: list[str], tmp_path: Path) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fedwca", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written (No space left on device)\n")


def test_a_disk_too_small_for_the_checkpoints_is_said_before(
    bench: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 65 << 20
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free}))
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", lambda *_: pytest.fail("work has started"))
    folder = tmp_path / "run"
    run = bench("--keep", "all", "--rounds", "2000", out=folder)
    assert run.code == 1
    assert "--keep all: checkpoints take about" in run.err
    assert "are free" in run.err
    assert not folder.exists()
