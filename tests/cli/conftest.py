from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedwca.cli import run
from tests.conftest import SMALL_MODEL
from tests.read_rounds import read_rounds

SIZE = "--clients 2 --rounds 2 --epochs 1 --lr 0.01 --batch-size 16 --device cpu"
SMALL = [*SIZE.split(), "--set", "source_training.epochs=1", "--model", SMALL_MODEL]
THREE_ROUNDS = ["--rounds", "3", "--baseline", "source-only", "--baseline", "fedavg", "--participation", "0.5"]


@dataclass(frozen=True)
class Run:
    """The outcome of one command line: exit code, output, errors, and the run folder that it was given."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())  # type: ignore[no-any-return]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return read_rounds(self.folder)

    @property
    def lines(self) -> list[str]:
        return (self.folder / "rounds.jsonl").read_text().splitlines()


def call(*arguments: str, folder: Path = Path(), columns: int = 200) -> Run:
    """Run a command line in this process, with output for a terminal of so many ``columns``.

    Args:
        arguments: without ``fedwca``.
        folder: of the run that the command writes or reads, for `Run.summary` and the like.
        columns: width.
    """
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv("COLUMNS", str(columns))
        code = run(list(arguments))
    return Run(code, out.getvalue(), err.getvalue(), folder)


def leave_half_written(file: Path) -> None:
    """Leave beside ``file`` what a process leaves that is killed while it writes it."""
    folder = file.with_name(f".{file.name}-{'a' * 32}")
    folder.mkdir(parents=True)
    (folder / file.name).write_text("{")


@pytest.fixture(scope="session")
def bench(shades: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Runs `fedwca bench` on the shades with small settings, which later arguments override."""

    def started(*arguments: str, out: Path | None = None, small: bool = True, columns: int = 200) -> Run:
        folder = out or tmp_path_factory.mktemp("runs") / "run"
        words = ["bench", "--data", str(shades), *(SMALL if small else []), "--out", str(folder), *arguments]
        return call(*words, folder=folder, columns=columns)

    return started


@pytest.fixture(scope="session")
def plain(bench: Callable[..., Run]) -> Run:
    """One run with default settings, but for those of size."""
    return bench()


@pytest.fixture(scope="session")
def finished_run(bench: Callable[..., Run]) -> Path:
    """An uninterrupted run."""
    run = bench(*THREE_ROUNDS, "--json")
    assert run.code == 0, run.err
    return run.folder


@pytest.fixture(scope="session")
def all_checkpoints(bench: Callable[..., Run]) -> Path:
    """The same run with all its checkpoints."""
    run = bench(*THREE_ROUNDS, "--keep", "all", "--quiet")
    assert run.code == 0, run.err
    assert not [line for line in run.err.splitlines() if not line.startswith("Warning: ")]
    return run.folder
