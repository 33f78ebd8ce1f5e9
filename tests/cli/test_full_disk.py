"""A full disk, or an output that cannot be written, ends in a sentence that says what was kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from safetensors import SafetensorError

from fedwca import cli
from fedwca.core import tensor_files

from .conftest import SMALL, Run, call

FULL = Path("/dev/full")
FULL_STREAM = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


class Full:
    """An output stream on a full disk."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


class ClosedTerminal(Full):
    """A terminal that was closed while a command was running in it."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")

    def isatty(self) -> bool:
        return True


def test_a_run_goes_on_where_its_terminal_is_closed(
    shades: Path, plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", ClosedTerminal())
    assert cli.run(["bench", "--data", str(shades), *SMALL, "--json", "--out", str(tmp_path / "run")]) == 0
    assert len(Run(0, "", "", tmp_path / "run").lines) == len(plain.lines)


def test_a_full_disk_leaves_no_empty_folder(plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_disk_full(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(tensor_files, "save_file", raise_disk_full)
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
    errors = capsys.readouterr().err
    assert "the output cannot be written (No space left on device); the run is whole, its results are in " in errors
    assert str(plain.folder) in errors
    assert run(["list"]) == 1
    assert "Error: the output cannot be written (No space left on device)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["compare", "fedavg", "local"], "the runs are whole, they are in kept"),
        (["sweep", "--param", "training.lr=1,2"], "the study is whole, it and its runs are in kept"),
        (["reproduce", "table2"], "the runs so far are whole, they are in kept"),
    ],
)
def test_work_of_many_runs_is_not_lost(words: list[str], kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    result = Mock(figures=[], values={}, rows=[], title="one")
    monkeypatch.setattr("fedwca.runs.compare.run_comparison", Mock(return_value=result))
    monkeypatch.setattr("fedwca.results.comparison.Comparison.table", Mock())
    monkeypatch.setattr("fedwca.search.study.search", Mock(return_value=[]))
    monkeypatch.setattr("fedwca.search.study.tabulate_tries", Mock())
    monkeypatch.setattr("fedwca.reproduce.plan_jobs.plan_jobs", Mock(return_value=[result]))
    monkeypatch.setattr("fedwca.reproduce.plan_jobs.announce_jobs", Mock())
    monkeypatch.setattr("fedwca.reproduce.run_jobs.run_job", Mock(return_value=result))
    monkeypatch.setattr("fedwca.cli.printing.print_in", raise_disk_full)
    run = call(*words, "--out", "kept")
    assert run.code == 1
    assert run.err == f"Error: the output cannot be written (No space left on device); {kept}\n"


def test_a_client_that_could_not_be_written_joins_later(
    plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedwca.cli import predict
    from fedwca.export import write_model

    def raise_disk_full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    images = np.random.default_rng(0).integers(0, 255, (6, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "client.npz", images=images)
    monkeypatch.chdir(tmp_path)
    words = ["join", str(plain.folder), "--data", "client.npz", "--out", "new"]
    for module, name in ((write_model, "model_card"), (predict.csv, "writer")):  # the card, then the table
        with monkeypatch.context() as patch:
            patch.setattr(module, name, raise_disk_full)
            run = call(*words)
        assert run.code == 1
        assert "cannot be written (No space left on device)" in run.err
        assert not (tmp_path / "new").exists()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Full())
        code = cli.run(words)
    assert code == 1
    assert len(list((tmp_path / "new").iterdir())) == 3
    assert call(*words).code == 2  # the files are there and complete


@FULL_STREAM
@pytest.mark.parametrize("words", [["list"], ["nosuch"], ["runs", "--root", "nowhere"]])
def test_errors_that_nobody_can_read_change_no_exit_code(words: list[str]) -> None:
    with FULL.open("w") as full:
        completed = subprocess.run([sys.executable, "-m", "fedwca", *words], stdout=full, stderr=full, check=False)
    assert completed.returncode == (2 if words == ["nosuch"] else 1)


@FULL_STREAM
@pytest.mark.parametrize("words", [["list"], ["show", "aggregator", "wca"], ["runs", "--root", "nowhere", "--json"]])
def test_nothing_is_said_twice_at_the_end(words: list[str], tmp_path: Path) -> None:
    with FULL.open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "fedwca", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
    assert (result.returncode, result.stderr) == (1, "Error: the output cannot be written (No space left on device)\n")


@FULL_STREAM
def test_nothing_heavy_is_loaded_to_say_so() -> None:
    code = "import sys; from fedwca.cli import run; assert run(['list']) == 1; sys.exit('torch' in sys.modules)"
    with FULL.open("w") as full:
        assert subprocess.run([sys.executable, "-c", code], stdout=full, check=False).returncode == 0


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
