"""Comparison of two recordings: which files and values are compared, on made-up run folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from .scripts import BENCHMARKS, script

same_numbers = script("same_numbers")
ROUND = {"round": 0, "accuracy": [50.0, 41.666666666666664], "bytes_up": 8, "seconds": {"train": 0.5}}
REPORT = "| method | mean | seconds |\n|---|--:|--:|\n| FedWCA | 41.7 | 2 |\n"


def write_tensors(file: Path, last: float = 0.5, dtype: torch.dtype = torch.float32) -> None:
    save_file({"bank": torch.tensor([[1.0, last]], dtype=dtype)}, str(file), {"fedwca": json.dumps({"round": 0})})


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[Path, Path]:
    """A recording of one case, and a copy of it."""
    run = tmp_path / "before" / "loop" / "run"
    run.mkdir(parents=True)
    (run / "rounds.jsonl").write_text(f"{json.dumps(ROUND)}\n{json.dumps({**ROUND, 'round': 1})}\n")
    (run / "summary.json").write_text(json.dumps({"methods": {"wca": {"mean": 45.8}}, "timing": {"total": 3.0}}))
    (run / "rounds.csv").write_text("client,accuracy,round_seconds_train\n0,50.0,0.5\n")
    (run / "report.md").write_text(REPORT)
    (run / "overview.png").write_bytes(b"\x89PNG")
    (run / "memory.json").write_text("{}")
    write_tensors(run / "000001.safetensors")
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    return tmp_path / "before", tmp_path / "after"


def compare(before: Path, after: Path, *options: str) -> int:
    code: int = same_numbers.main(["compare", str(before), str(after), *options])
    return code


def test_times_and_memory_are_not_compared(recordings: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = recordings[1] / "loop" / "run"
    for name in ("rounds.jsonl", "rounds.csv"):
        (run / name).write_text((run / name).read_text().replace("0.5", "0.75"))
    (run / "summary.json").write_text((run / "summary.json").read_text().replace("3.0", "4.0"))
    (run / "report.md").write_text(REPORT.replace("| 2 |", "| 13 |"))
    for recording, seconds, name in zip(recordings, (36, 37), ("unbroken", "resumed"), strict=True):
        (recording / "loop" / "0.txt").write_text(f"Ran {seconds} s after 4 s of set-up.\n")
        (recording / "loop" / "run" / "environment.json").write_text(json.dumps({"command": f"fedwca --out {name}"}))
    (run / "memory.json").write_text('{"measured": 1}')
    assert compare(*recordings) == 0
    assert capsys.readouterr().out == "same      loop, files: 8\n"


def test_a_resumed_run_may_say_that_it_was(recordings: tuple[Path, Path]) -> None:
    for recording, fields in zip(recordings, ({}, {"resumed": {"1": {"command": "fedwca resume run"}}}), strict=True):
        (recording / "loop" / "run" / "environment.json").write_text(json.dumps({"device": "cpu", **fields}))
    assert compare(*recordings) == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("rounds.jsonl", '"round": 1', '"round": 2', "rounds.jsonl, line 2, round: 1 and 2"),
        ("rounds.jsonl", "666664]", "666665]", "line 1, accuracy[1]: 41.666666666666664 and 41.666666666666665"),
        ("rounds.jsonl", "50.0, ", "", "line 1, accuracy: 2 and 1 values"),
        ("rounds.jsonl", "bytes_up", "bytes_sent", "line 1: 'bytes_up' is in the first alone"),
        ("summary.json", "45.8", "null", "summary.json, methods, wca, mean: 45.8 and None"),
        ("rounds.csv", "50.0", "-50.0", "rounds.csv, line 1, accuracy: 50.0 and -50.0"),
        ("report.md", "41.7", "41.8", "report.md, line 3: | FedWCA | 41.7  and | FedWCA | 41.8"),
    ],
)
def test_a_changed_number_is_named(
    recordings: tuple[Path, Path], capsys: pytest.CaptureFixture[str], name: str, old: str, new: str, said: str
) -> None:
    file = recordings[1] / "loop" / "run" / name
    file.write_text(file.read_text().replace(old, new))
    assert compare(*recordings) == 1
    out = capsys.readouterr().out
    assert out.startswith("DIFFERS   loop: run/")
    assert said in out


def test_tensors_are_compared_bit_by_bit(recordings: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    file = recordings[1] / "loop" / "run" / "000001.safetensors"
    write_tensors(file, float(torch.nextafter(torch.tensor(0.5), torch.tensor(1.0))))
    assert compare(*recordings) == 1
    assert "000001.safetensors, bank: 0.5 at 1 and 0.5000000596046448 at 1" in capsys.readouterr().out
    write_tensors(file, dtype=torch.float16)
    assert compare(*recordings) == 1
    assert "bank: F32 [1, 2] and F16 [1, 2]" in capsys.readouterr().out


def test_what_only_one_of_them_has(recordings: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = recordings
    (after / "loop" / "run" / "overview.png").unlink()
    (after / "stacked").mkdir()
    (after / "stacked" / "0.txt").write_text("1.5\n")
    assert compare(before, after) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == "DIFFERS   loop: run/overview.png: is in the first alone"
    assert second == "DIFFERS   stacked: 0.txt: is in the second alone"
    assert compare(before, after, "--only", "stacked", "--added") == 0
    capsys.readouterr()
    assert compare(before, after, "--added") == 1
    with pytest.raises(SystemExit, match="--only lop: there are loop, stacked"):
        compare(before, after, "--only", "lop")
    with pytest.raises(SystemExit, match="nowhere: no such folder"):
        compare(before, before / "nowhere")


def test_a_folder_that_is_there_is_not_recorded_into(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is there already"):
        same_numbers.main(["record", str(tmp_path)])


def test_a_case_that_is_not_there_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_nothing(words: str, out: Path) -> None:
        out.write_text("{}")

    monkeypatch.setattr(same_numbers, "run_command", write_nothing)
    monkeypatch.setattr(same_numbers, "write_images", Path.mkdir)
    monkeypatch.setattr(same_numbers, "cases", lambda listed: {"loop": []})
    monkeypatch.setattr(same_numbers, "LIBRARIES", ())
    monkeypatch.setattr(same_numbers.os, "environ", {**os.environ})
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit, match="--only lop: there are loop"):
        same_numbers.main(["record", str(tmp_path / "before"), "--only", "lop"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_is_recorded_twice_is_the_same(tmp_path: Path) -> None:
    for name in ("before", "after"):
        command = [sys.executable, str(BENCHMARKS / "same_numbers.py"), "record", str(tmp_path / name)]
        subprocess.run([*command, "--only", "deployment"], check=True)
    assert compare(tmp_path / "before", tmp_path / "after") == 0
