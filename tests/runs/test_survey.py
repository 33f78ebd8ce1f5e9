"""Where trials that ran together resume: after the last round for which all of them have a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca.errors import CheckpointError
from fedwca.results.checkpoints import Checkpoints
from fedwca.results.retention_policy import RetentionPolicy
from fedwca.results.unit import Unit
from fedwca.runs.resuming.find_resume_points import find_resume_points

UNITS = {Unit(0, trial, "wca"): 5 for trial in range(3)}
TOGETHER = [[(0, 0), (0, 1)], [(0, 2)]]


def kept(folder: Path, saved_rounds: list[list[int]]) -> tuple[Checkpoints, list[dict[str, Any]]]:
    """A run whose trials have checkpoints of these rounds, and a record of each round up to the newest."""
    checkpoints, records = Checkpoints(folder, "mine"), []
    for unit, rounds in zip(UNITS, saved_rounds, strict=True):
        for round in rounds:
            checkpoints.save(unit, round, {"row": torch.full((2,), float(round))}, {}, last=False)
        for round in range(-1, max(rounds, default=-2) + 1):
            records.append({"source_model": 0, "trial": unit.trial, "method": "wca", "round": round})
    return checkpoints, records


def rounds(
    folder: Path, saved_rounds: list[list[int]], damaged: tuple[int, int] | None = None
) -> tuple[list[Any], list[str]]:
    """The round after which each trial resumes (None: from the start), and the sentences the user is told."""
    checkpoints, records = kept(folder, saved_rounds)
    if damaged is not None:
        path = folder / f"checkpoints/0-{damaged[0]}-wca/{damaged[1] + 1:06d}.safetensors"
        path.write_bytes(path.read_bytes()[:-9])
    resume_points, sentences = find_resume_points(checkpoints, UNITS, records, TOGETHER)
    return [saved.round if (saved := resume_points.get(unit)) else None for unit in UNITS], sentences


@pytest.mark.parametrize(
    ("stand", "found"),
    [
        ([[1, 2], [1, 2], [3]], [2, 2, 3]),
        ([[1, 2], [0, 1], [3]], [1, 1, 3]),
        ([[3, 4], [2, 3], [3]], [3, 3, 3]),
        ([[-1], [], []], [-1, None, None]),  # a trial without checkpoints has not begun round 0 either
    ],
)
def test_who_is_ahead_goes_back(tmp_path: Path, stand: list[list[int]], found: list[Any]) -> None:
    assert rounds(tmp_path, stand) == (found, [])


def test_nothing_is_lost_where_they_cannot_have_gone_together(tmp_path: Path) -> None:
    resumed, (sentence,) = rounds(tmp_path, [[0, 1, 2, 3], [0, 1], [3]])
    assert resumed == [3, 1, 3]
    assert sentence.startswith("trials of wca that went through rounds together stand at different ones")


def test_a_damaged_checkpoint_to_go_back_to_is_as_good_as_none(tmp_path: Path) -> None:
    resumed, (sentence,) = rounds(tmp_path, [[1, 2], [0, 1], [3]], damaged=(0, 1))
    assert resumed == [2, 1, 3]
    assert "last digits may differ" in sentence


def test_a_damaged_newest_checkpoint_takes_the_others_back(tmp_path: Path) -> None:
    resumed, (sentence,) = rounds(tmp_path, [[1, 2], [1, 2], [3]], damaged=(1, 2))
    assert resumed == [1, 1, 3]
    assert "going on from round 2" in sentence


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    checkpoints, _ = kept(tmp_path, [[1], [1], [1]])
    (first, *later) = sorted((tmp_path / "checkpoints").iterdir())
    leftover = first / f".000003.safetensors-{'0' * 32}"
    leftover.mkdir()
    for name in ("000003.safetensors", ".tmpAb3dEf"):  # ours, and that of safetensors itself
        (leftover / name).write_bytes(b"half")
    checkpoints.remove_leftovers()
    assert [file.name for folder in (first, *later) for file in folder.iterdir()] == ["000002.safetensors"] * 3


def test_ends_are_tidied_where_no_checkpoint_is_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "mine", RetentionPolicy.parse("selected"))
    unit = next(iter(UNITS))
    for round in (3, 4):
        checkpoints.save(unit, round, {"row": torch.zeros(2)}, {}, last=False)
    for file in checkpoints.files(unit):
        file.write_bytes(b"nothing")
    record = {"source_model": 0, "trial": 0, "method": "wca"}
    resume_points, (sentence,) = find_resume_points(
        checkpoints, {unit: 5}, [{**record, "round": r} for r in range(-1, 5)]
    )
    checkpoints.end(unit)
    assert resume_points == {unit: None}
    assert sentence.endswith("its rounds stay as they are, its models are lost")
    with pytest.raises(CheckpointError, match="to begin this method anew"):
        find_resume_points(checkpoints, {unit: 9}, [{**record, "round": r} for r in range(-1, 5)])


def test_a_checkpoint_of_another_schema_may_hold_other_facts(tmp_path: Path) -> None:
    store, unit = Checkpoints(tmp_path, "mine", RetentionPolicy.parse("last")), Unit(0, 0, "wca")
    store.save(unit, 0, {"x": torch.zeros(1)}, {"unit": {"model": 0}, "schema": 99}, last=True)
    with pytest.raises(CheckpointError, match="has schema 99; this fedwca reads schema"):
        store.latest(unit)
