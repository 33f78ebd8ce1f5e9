"""The command for GPU measurements, rehearsed on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from .scripts import script


def test_a_rehearsal_writes_a_file_and_checks_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["parity", "--device", "cpu", "--small", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words])
    with torch.backends.cudnn.flags(enabled=True):  # keeps what the piece sets from other tests
        assert script("gpu").main() == 0
    (file,) = tmp_path.iterdir()
    result = json.loads(file.read_text())
    assert file.name == "parity.json"
    assert result["met"]
    assert result["small"]
    assert result["environment"]["device"] == "cpu"


def test_a_piece_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = script("gpu")

    def broken(place: object) -> dict[str, object]:
        raise RuntimeError("no such kernel")

    def works(place: object) -> dict[str, object]:
        """A piece."""
        return {"met": None}

    monkeypatch.setattr(gpu, "PIECES", {"broken": broken, "works": works})
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--small", "--out", str(tmp_path)])
    assert gpu.main() == 1
    assert [file.name for file in tmp_path.iterdir()] == ["works.json"]
    captured = capsys.readouterr()
    assert "broken: failed" in captured.out
    assert "no such kernel" in captured.err


def test_a_rehearsal_is_no_result(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "parity", "--device", "cpu", "--small"])
    assert script("gpu").main() == 2
    assert "give it an --out of its own" in capsys.readouterr().err


def test_a_table_of_two_pieces_names_the_devices_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = script("gpu_tables")
    for name in ("digit_five", "trials"):
        result = json.loads((tables.RESULTS / f"{name}.json").read_text())
        result["environment"]["device"] = f"GPU of {name}"
        result["environment"]["versions"]["torch"] = "2.11.0"
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    text = tables.digit_five()
    assert text.endswith("GPU of digit_five, torch 2.11.0; GPU of trials, torch 2.11.0 (`python benchmarks/gpu.py`).")
