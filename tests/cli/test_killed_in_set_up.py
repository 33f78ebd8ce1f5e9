"""A run folder whose process was killed before the first round is continued by every command that makes runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwca.results.write_run import RunFolder
from tests.read_rounds import read_rounds

from ..conftest import SMALL_MODEL
from ..shades import write_shades
from .conftest import Run, call, leave_half_written

Make = Callable[..., Run]


class Killed(BaseException):
    """Stands for a signal that cannot be caught: no step after it is taken, not even to clean up."""


ALONE = ["--baseline", "none"]
KILLED = ["claimed", "begun", "loaded", "decided"]


def kill(bench: Make, folder: Path, moment: str, *arguments: str) -> None:
    """Leave in ``folder`` what a process leaves that is killed at a moment of the set-up, one of `KILLED`."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    function = {
        "claimed": "fedwca.runs.start_run.describe_request",
        "begun": "fedwca.runs.start_run.load",
        "loaded": "fedwca.runs.prepare_run.size_run",
        "decided": "fedwca.runs.prepare_run.describe_environment",
    }[moment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function, die)
        patch.setattr(RunFolder, "discard", lambda self: None)
        with pytest.raises(Killed):
            bench(*arguments, out=folder)
    for lock in folder.rglob(".lock"):
        leave_half_written(lock.parent / "config.json")


def result(folder: Path) -> tuple[Any, ...]:
    """A run's rounds without times, models, configuration without places, and file names."""
    models = {file.relative_to(folder): file.read_bytes() for file in folder.glob("checkpoints/*/*")}
    config = {**json.loads((folder / "config.json").read_text()), "places": None}
    return (
        read_rounds(folder, without=["seconds"]),
        models,
        config,
        sorted(file.name for file in folder.iterdir()),
    )


@pytest.fixture(scope="module")
def alone(bench: Make) -> Run:
    """A run of one method."""
    return bench(*ALONE)


@pytest.mark.parametrize("moment", KILLED)
@pytest.mark.parametrize("way", ["bench", "--resume", "resume"])
def test_a_run_killed_in_set_up_is_continued(bench: Make, alone: Run, tmp_path: Path, moment: str, way: str) -> None:
    folder = tmp_path / "run"
    kill(bench, folder, moment, *ALONE)
    if moment == "claimed" and way == "resume":
        # Nothing in the folder says which run it was to be.
        run = call("resume", str(folder))
        assert run.code == 2
        assert f"{folder}: holds no run (no config.json)" in run.err
        return
    if moment == "decided" and way == "bench":
        # A run that was set up is continued only on request.
        assert (
            "holds a run already; name another folder, remove it, or continue it with" in bench(*ALONE, out=folder).err
        )
        return
    more = ["--resume"] if way == "--resume" else []
    run = call("resume", str(folder)) if way == "resume" else bench(*ALONE, *more, out=folder)
    assert run.code == 0, run.err
    assert result(folder) == result(alone.folder)


def test_a_continued_run_records_its_split_digest(bench: Make, tmp_path: Path) -> None:
    data, folder = write_shades(tmp_path / "data"), tmp_path / "run"
    for file in data.glob("*.npz"):
        with np.load(file) as arrays:
            with_groups = {**arrays, "groups": np.arange(len(arrays["labels"])) // 2}
        np.savez(file, **with_groups)
    kill(bench, folder, "begun", "--data", str(data), "--rounds", "1", "--baseline", "none")
    assert call("resume", str(folder)).code == 0
    assert len(json.loads((folder / "config.json").read_text())["split_digest"]) == 64


def test_a_run_killed_in_set_up_is_listed_shown_and_removed(bench: Make, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "run"
    kill(bench, folder, "begun")
    (line,) = json.loads(call("runs", "--root", str(folder.parent), "--json").out)
    assert (line["run"], line["state"], line["accuracy"]) == ("run", "stopped", None)
    shown = call("runs", "--root", str(folder.parent), "show", "run")
    assert shown.code == 0
    assert "0 of 2" in shown.out
    assert "Continue it with: fedwca resume" in shown.out
    for command in ("report", "export", "plot"):
        options = {"export": ["--client", "0", "--out", "m.safetensors"], "plot": ["curves"]}.get(command, [])
        run = call(command, str(folder), *options)
        assert "unexpected" not in run.err
    assert call("runs", "rm", str(folder), "--yes").code == 0
    assert not folder.exists()


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_another_request_is_refused_by_what_differs(bench: Make, tmp_path: Path, more: list[str]) -> None:
    folder = tmp_path / "run"
    kill(bench, folder, "begun")
    run = bench("--seed", "5", *more, out=folder)
    assert run.code == 2
    assert f"{folder}: holds a run of another configuration: seed is 0 there, 5 here" in run.err
    assert bench(out=folder).code == 0
    again = bench("--seed", "5", *more, out=folder)
    assert again.code == 2
    assert ("seed is 0 there, 5 here" if more else "holds a run already") in again.err


def test_resume_begins_or_continues(bench: Make, plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    assert bench("--resume", out=folder).code == 0
    assert result(folder) == result(plain.folder)
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", lambda *_: pytest.fail("work has started"))
    again = bench("--resume", out=folder)
    assert again.code == 0
    assert "FedWCA" in again.out
    for words in (["bench", "--resume"], ["bench", "--resume", "--out", str(folder), "--backend", "flower"]):
        refused = call(*words)
        assert refused.code == 2
        assert "--resume needs --out" in refused.err
    refused = bench("--resume", "--dry-run", out=folder)
    assert (refused.code, "--resume and --dry-run do not go together" in refused.err) == (2, True)


def test_an_error_in_set_up_leaves_what_was_there(bench: Make, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    wrong = ["--clients", "1000"]
    assert bench(*wrong, out=folder).code != 0
    assert not folder.exists()
    kill(bench, folder, "begun", *wrong)
    assert bench(*wrong, "--resume", out=folder).code != 0
    assert (folder / "config.json").exists()


@pytest.mark.parametrize("moment", KILLED)
def test_a_comparison_continues_a_run_killed_in_set_up(shades: Path, tmp_path: Path, moment: str) -> None:
    small = ["--clients", "1", "--rounds", "1", "--epochs", "1", "--set", "source_training.epochs=1"]
    words = ["compare", "fedavg", "--data", str(shades), *small, "--model", SMALL_MODEL, "--out", str(tmp_path)]

    def compare(*arguments: str, **_: Any) -> Run:
        return call(*words, *arguments)

    kill(compare, tmp_path, moment)
    assert compare().code == 0
    assert len(list(tmp_path.iterdir())) == 1
