"""Checkpoints of a run: how many stay, and what a run does without those that are damaged or lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .conftest import call
from .resumed_runs import Make, result, resume, stopped


def test_a_damaged_checkpoint_gives_way_to_the_one_before(all_checkpoints: Path, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    newest, previous = (folder / f"checkpoints/0-0-wca/00000{number}.safetensors" for number in (2, 1))
    newest.write_bytes(newest.read_bytes()[:1000])
    run = resume(folder)
    assert run.code == 0
    assert f"Warning: {newest}: cut off, damaged or no checkpoint" in run.err
    assert "going on from round 1" in run.err
    assert result(folder) == result(all_checkpoints)
    shutil.rmtree(folder)
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    flipped = bytearray(newest.read_bytes())
    flipped[-100] ^= 1  # one bit, which changes neither the size nor the header
    newest.write_bytes(flipped)
    run = resume(folder)
    assert run.code == 0
    assert f"Warning: {newest}: damaged; its contents are not those that were written; going on from" in run.err
    assert result(folder) == result(all_checkpoints)
    shutil.rmtree(folder)
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    (folder / "checkpoints/0-0-wca/000000.safetensors").unlink()
    for file in (newest, previous):
        file.write_bytes(b"nothing")
    run = resume(folder)
    assert run.code == 1
    assert "and there is no other; remove" in run.err


def test_a_finished_method_whose_models_are_lost_keeps_its_rounds(all_checkpoints: Path, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    for file in (folder / "checkpoints/0-0-fedavg").glob("*"):
        file.write_bytes(b"nothing")
    run = resume(folder)
    assert run.code == 0
    assert "and there is no other; its rounds stay as they are, its models are lost" in run.err
    assert result(folder)[0] == result(all_checkpoints)[0]
    export = call(
        "export", str(folder), "--method", "fedavg", "--client", "0", "--out", str(tmp_path / "m.safetensors")
    )
    assert export.code == 1, export.err
    assert "run fedavg again in another folder" in export.err, export.err


def test_a_finished_method_that_lost_its_last_round_does_it_again(all_checkpoints: Path, tmp_path: Path) -> None:
    folder = stopped(all_checkpoints, tmp_path / "run", 8)
    (folder / "checkpoints/0-0-fedavg/000003.safetensors").write_bytes(b"nothing")
    assert resume(folder).code == 0
    assert result(folder) == result(all_checkpoints)


@pytest.mark.parametrize(
    ("keep", "files"),
    [("last", {"source_only": [0], "wca": [3]}), ("2", {"source_only": [0], "wca": [2, 3]}), ("none", {})],
)
def test_how_many_checkpoints_stay(bench: Make, keep: str, files: dict[str, list[int]]) -> None:
    run = bench("--rounds", "3", "--baseline", "source-only", "--keep", keep)
    assert run.code == 0
    numbers: dict[str, list[int]] = {}
    for file in sorted(run.folder.glob("checkpoints/*/*")):
        numbers.setdefault(file.parent.name.removeprefix("0-0-"), []).append(int(file.stem))
    assert numbers == files
    assert (run.folder / "checkpoints").exists() == (keep != "none")
    if keep == "none":
        # A finished method of which nothing is kept is not done again.
        (run.folder / "summary.json").unlink()
        before = run.lines
        assert resume(run.folder).code == 0
        assert run.lines == before
    refused = bench("--keep", "some")
    assert refused.code == 2
    assert "--keep some: takes last, selected, all, none or a number of at least 1" in refused.err
