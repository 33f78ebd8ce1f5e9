"""Tables whose rows or columns are of several run folders: their settings are the same."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from .scripts import BENCHMARKS, script

frozen, reproduction = script("frozen_tables"), script("reproduction_tables")


def copy_with_other_samples(tmp_path: Path, tables: ModuleType, changed: str) -> None:
    """Copy the committed summaries, of which one says that clients have other numbers of images."""
    for path in tables.RUNS.glob("*/summary.json"):
        summary = json.loads(path.read_text())
        if path.parent.name == changed:
            summary["config"]["samples"] = 7
        (tmp_path / path.parent.name).mkdir()
        (tmp_path / path.parent.name / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize(
    ("tables", "block", "changed"),
    [
        (frozen, "frozen", "cartoon"),
        (frozen, "frozen-printed", "photo-printed"),
        (reproduction, "reproduce-table3", "digit_five-synth-2"),
    ],
)
def test_folders_of_other_settings_are_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: ModuleType, block: str, changed: str
) -> None:
    copy_with_other_samples(tmp_path, tables, changed)
    monkeypatch.setattr(tables, "RUNS", tmp_path)
    with pytest.raises(ValueError, match=rf"{changed} cannot be in one table: samples is \d+ and 7"):
        tables.BLOCKS[block]()


def test_a_table_with_another_one_s_row_compares_the_settings_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_with_other_samples(tmp_path, frozen, "")
    for source in frozen.SOURCES:
        path = tmp_path / source / "summary.json"
        summary = json.loads(path.read_text())
        summary["config"]["rounds"] = 7
        path.write_text(json.dumps(summary))
    monkeypatch.setattr(frozen, "RUNS", tmp_path)
    with pytest.raises(ValueError, match=r"art_painting-printed and art_painting cannot be in one table: rounds is"):
        frozen.printed()


def test_a_frozen_run_goes_on_by_the_command_that_refuses_other_settings(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "frozen.sh").write_text((BENCHMARKS / "frozen.sh").read_text())
    (tmp_path / "runs" / "frozen" / "photo-printed").mkdir(parents=True)
    for program in ("fedwca", "python"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho "{program} $*" >> "{tmp_path}/log"\n')
        (tmp_path / program).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PRINTED": "1", "SOURCES": "photo", "IMAGES": "7"}
    subprocess.run(["bash", str(tmp_path / "benchmarks" / "frozen.sh")], check=True, env=os.environ | variables)
    run, kept = (tmp_path / "log").read_text().splitlines()
    assert run.startswith("fedwca bench ")
    assert "--out runs/frozen/photo-printed --resume" in run
    assert "--samples 7" in run
    assert kept.startswith("python benchmarks/keep.py")
