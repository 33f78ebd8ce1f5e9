"""A run folder that was edited is named with its file and line, and hides no other run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run, call

CHANGES: list[tuple[str, dict[str, Any] | str]] = [
    ("config.json", {"schema": "2"}),
    ("config.json", {"schema": None}),
    ("config.json", {"methods": []}),
    ("config.json", {"methods": {"wca": None}}),
    ("config.json", {"domains": [None]}),
    ("config.json", {"classes": "ab"}),
    ("config.json", {"places": {"directory": 3}}),
    ("config.json", {"data_digest": 5}),
    ("config.json", {"config": None}),
    ("config.json", "[" * 100_000),
    ("config.json", ""),
    ("summary.json", {"methods": []}),
    ("summary.json", {"methods": {"wca": {"mean": "x"}}}),
    ("summary.json", {"complete": "yes"}),
    ("summary.json", ""),
    ("environment.json", {"time": "yesterday"}),
    ("environment.json", {"time": "0001-01-01T00:00:00"}),
    ("environment.json", {"time": 3}),
    ("environment.json", "null"),
    ("rounds.jsonl", '{"method": "wca"}\n{}\n'),
    ("rounds.jsonl", "[]\nnull\n"),
]


def edit(file: Path, change: dict[str, Any] | str) -> None:
    text = change if isinstance(change, str) else json.dumps({**json.loads(file.read_text()), **change})
    file.write_text(text)


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=str)
def test_an_odd_neighbour_hides_nobody(plain: Run, tmp_path: Path, name: str, change: dict[str, Any] | str) -> None:
    good, odd = (Path(shutil.copytree(plain.folder, tmp_path / "runs" / kind)) for kind in ("good", "odd"))
    edit(odd / name, change)
    listed = call("runs", "--root", str(tmp_path / "runs"), "--json")
    assert listed.code == 0
    assert "unexpected" not in listed.err
    lines = {line["run"]: line for line in json.loads(listed.out)}
    assert lines["good"]["state"] == "done"
    if name != "rounds.jsonl":  # which the list does not read
        assert lines["odd"]["state"] == "damaged"
        assert f"{odd / name}: " in lines["odd"]["problem"]
    for words in (["report", str(good), str(odd), "--out", str(tmp_path / "r.md")], ["resume", str(odd)]):
        run = call(*words)
        assert "unexpected" not in run.err, run.err
        if run.code:
            assert f"{odd / name}" in run.err
    if name == "environment.json":  # it says where the run was made, and stops nothing
        assert call("resume", str(odd)).code == 0
    if name == "summary.json":  # made again
        assert call("runs", "--root", str(tmp_path / "runs"), "show", "odd").code == 0
