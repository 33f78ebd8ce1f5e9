"""A folder that holds no run, another run's, or one that another process has is not gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedwca.results import checkpoints
from fedwca.results.lock import hold_lock
from fedwca.results.write_run import RunFolder

from ..shades import write_shades
from .conftest import THREE_ROUNDS, call
from .resumed_runs import Make, edit_config, result, resume, stopped


def test_a_run_that_does_not_fit_is_refused(
    all_checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    edit_config(folder, config={"seed": 7})
    run = resume(folder)
    assert (run.code, run.out) == (1, "")
    assert "belongs to another run, whose configuration differs" in run.err
    edit_config(folder, config={"seed": 0}, data_digest="0")
    assert "the images of shades are not those the run began with" in resume(folder).err
    shutil.rmtree(folder)
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    monkeypatch.setattr(checkpoints, "SCHEMA", 2)
    assert "has schema 1; this fedwca reads schema 2" in resume(folder).err
    contents = json.loads((folder / "config.json").read_text())
    contents["methods"]["wca"]["components"][1]["ta"] = 0.5
    (folder / "config.json").write_text(json.dumps(contents))
    run = resume(folder)
    assert run.code == 2
    assert "was begun with other components than are installed now: wca.aggregator.wca.ta was 0.5, is" in run.err


def test_a_run_of_a_later_version_is_named(all_checkpoints: Path, bench: Make, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    edit_config(folder, config={"later": 1})
    opened = call("export", str(folder), "--client", "0", "--out", str(tmp_path / "m.safetensors"))
    for run in (resume(folder), bench(*THREE_ROUNDS, "--resume", out=folder), opened):
        assert run.code == 1
        assert f"{folder}: does not fit this fedwca or its plugins (later: there is no such field" in run.err


def test_a_mistake_of_a_request_is_not_the_runs(all_checkpoints: Path, bench: Make, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    run = bench("--resume", "--set", "dataset.imagez=3", out=folder)
    assert run.code == 2
    assert "imagez" in run.err
    assert "does not fit" not in run.err


@pytest.mark.parametrize("command", ["resume", "bench"])
def test_a_run_from_before_a_field_goes_on_at_its_default(
    all_checkpoints: Path, bench: Make, tmp_path: Path, command: str
) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 0)
    contents = json.loads((folder / "config.json").read_text())
    del contents["methods"]["wca"]["components"][1]["direction"]
    (folder / "config.json").write_text(json.dumps(contents))
    run = resume(folder) if command == "resume" else bench(*THREE_ROUNDS, "--resume", out=folder)
    assert run.code == 0, run.err
    assert result(folder)[:2] == result(all_checkpoints)[:2]  # checkpoints hold a hash of the fields


def write_groups(data: Path, size: int) -> None:
    """Mark every ``size`` images in turn of each archive as variants of one image."""
    for file in data.glob("*.npz"):
        with np.load(file) as arrays:
            with_groups = {**arrays, "groups": np.arange(len(arrays["labels"])) // size}
        np.savez(file, **with_groups)


def test_images_that_other_clients_would_have_are_refused(bench: Make, tmp_path: Path) -> None:
    data = write_shades(tmp_path / "data")
    write_groups(data, 2)
    run = bench("--data", str(data), "--rounds", "1", "--baseline", "none")
    assert run.code == 0, run.err
    (run.folder / "summary.json").unlink()
    assert resume(run.folder).code == 0
    (run.folder / "summary.json").unlink()
    write_groups(data, 4)
    refused = resume(run.folder)
    assert (refused.code, refused.out) == (1, "")
    assert f"{run.folder}: groups, units or parts of data are not those the run began with" in refused.err
    contents = json.loads((run.folder / "config.json").read_text())
    del contents["split_digest"]  # as of earlier releases
    (run.folder / "config.json").write_text(json.dumps(contents))
    assert resume(run.folder).code == 0


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    run = resume(tmp_path / "nowhere")
    assert run.code == 2
    assert "no such run" in run.err
    assert "holds no run (no config.json)" in resume(tmp_path).err


def test_a_second_process_is_refused(all_checkpoints: Path, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    lock = hold_lock(folder)
    try:
        run = resume(folder)
    finally:
        lock.release()
    assert run.code == 2
    assert f"{folder}: another process is at work here" in run.err
    assert resume(folder).code == 0


def test_a_run_that_another_process_ended_meanwhile_is_left_alone(
    all_checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)

    def take_over(path: Path, again: bool) -> RunFolder:
        for name in ("rounds.jsonl", "summary.json"):
            shutil.copy(all_checkpoints / name, folder)
        return RunFolder(path, again=again)

    monkeypatch.setattr("fedwca.runs.resuming.resume_run.RunFolder", take_over)
    run = resume(folder)
    assert run.code == 2
    assert "another process was at work here until now; run this again" in run.err
    assert result(folder)[1] == result(all_checkpoints)[1]
