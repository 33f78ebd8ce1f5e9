"""What studies share that run a piece at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .scripts import script

run_pieces = script("run_pieces")


def test_a_piece_that_is_run_again_is_shown_beside_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, out = tmp_path / "results" / "study", tmp_path / "repeated"
    kept.mkdir(parents=True)
    parser = run_pieces.piece_options("A study.", kept)
    entries = {"FedWCA": {"accuracy": [50.0, None, 60.0]}, "trials": {"accuracy": [[1.0, 2.0], [3.0, None]]}}
    (kept / "a.json").write_text(json.dumps({"methods": {"FedWCA": {"accuracy": [50.0]}}}))
    given = parser.parse_args(["a", "--again", "--out", str(out)])
    run_pieces.check_pieces(parser, given, ["a"])
    assert given.runs == out / "runs", "a run folder that is there already would be taken for this one"
    assert run_pieces.find_results("a", given, kept) == []

    def run(piece: str, *_: object) -> None:
        out.mkdir()
        (out / f"{piece}.json").write_text(json.dumps({"source": "x", "methods": entries}))

    run_pieces.run_pieces({"a": "a"}, given, run, lambda *_: "")
    said = capsys.readouterr().out.splitlines()
    assert said == ["a", "  FedWCA: 55.0 % (kept: 50.0)", "  trials: 2.0 % (kept: nothing)"]
    with pytest.raises(SystemExit):
        run_pieces.check_pieces(parser, parser.parse_args(["a", "--again"]), ["a"])
