"""What all studies share that run one piece at a time."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest

from ..fork_server import CommandLine, ForkServer
from .scripts import BENCHMARKS, script

run_pieces, keep = script("run_pieces"), script("keep")


def test_a_piece_that_is_run_again_is_shown_beside_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, out = tmp_path / "results" / "study", tmp_path / "repeated"
    results.mkdir(parents=True)
    parser = run_pieces.piece_options("A study.", results)
    entries = {"FedWCA": {"accuracy": [50.0, None, 60.0]}, "trials": {"accuracy": [[1.0, 2.0], [3.0, None]]}}
    (results / "a.json").write_text(json.dumps({"methods": {"FedWCA": {"accuracy": [50.0]}}}))
    options = parser.parse_args(["a", "--again", "--out", str(out)])
    run_pieces.check_pieces(parser, options, ["a"])
    assert options.runs == out / "runs", "a run folder that is there already would be taken for this one"
    assert run_pieces.find_results("a", options, results) == []

    def run(piece: str, *_: object) -> None:
        out.mkdir()
        (out / f"{piece}.json").write_text(json.dumps({"source": "x", "methods": entries}))

    run_pieces.run_pieces({"a": "a"}, options, run, lambda *_: "")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["a", "  FedWCA: 55.0 % (kept: 50.0)", "  trials: 2.0 % (kept: nothing)"]
    with pytest.raises(SystemExit):
        run_pieces.check_pieces(parser, parser.parse_args(["a", "--again"]), ["a"])


@pytest.mark.parametrize(
    "words",
    [
        "adapted_step --repeats 1",
        "cpu_targets --images 64",
        "evidence_precision --samples 20",
        "finch_scale --sizes 500 1000",
        "join --source-epochs 1",
        "kernels --candidates eager",
        "learned_adaptation --rounds 2",
        "many_clients --clients 100",
        "profile_round --samples 20",
        "profile_round --source mnist",
        "scaling --repeats 1",
        "scaling --repeats 1 --out elsewhere.json",
        "slices_of_one --repeats 1",
        "small_maps --repeats 1",
    ],
)
def test_a_rehearsal_does_not_overwrite_what_is_committed(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = words.split()
    module = script(name)
    for work in ("measure", "bench", "picture", "provenance"):  # so that without the check nothing is run or written
        monkeypatch.setattr(module, work, lambda *_, **__: pytest.fail("it was begun"), raising=False)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    other = "--picture" if "--out" in options else "--out"
    assert f"{options[0]} is not its default" in (stderr := capsys.readouterr().err)
    assert stderr.endswith(f"give another {other}\n")


def test_a_measurement_of_the_committed_size_or_in_another_file_is_let_through(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--out", type=Path, default=tmp_path / "kept.json")
    for words in ([], ["--images", "640"], ["--images", "64", "--out", str(tmp_path / "other.json")]):
        keep.refuse_rehearsal(parser, parser.parse_args(words), "images")


STUDY = """
import multiprocessing
import sys
from pathlib import Path

import run_pieces
from time_limit import TimeIsUp


def fork(method):
    assert method == "spawn"
    return multiprocessing.get_context("fork")


def run(piece, given, clock):
    if piece == "bad":
        raise ValueError("no such model")
    if piece == "other":
        sys.exit("was begun with another source model")
    if piece == "long":
        raise TimeIsUp
    (given.out / piece).touch()


def main(words):
    run_pieces.get_context = fork  # a spawned process would import torch
    given = run_pieces.piece_options("A study.", Path("kept")).parse_args(words)
    run_pieces.run_pieces({name: name for name in given.pieces}, given, run, print)
"""


def test_pieces_side_by_side_end_each_for_itself(tmp_path: Path, fork_server: ForkServer) -> None:
    (tmp_path / "study.py").write_text(STUDY)
    words = ["bad", "a", "other", "long", "b", "--out", str(tmp_path), "--at-once", "2"]
    code = f"import sys; sys.path[:0] = {[str(tmp_path), str(BENCHMARKS)]}; import study; study.main({words})"
    ended = fork_server.run(CommandLine([], str(tmp_path), dict(os.environ), code))
    assert {"a", "b"} <= {file.name for file in tmp_path.iterdir()}
    assert ended.code == 1
    assert sorted(ended.out.splitlines()) == ["a", "b"]
    assert {"bad: failed", "other: failed", "ValueError: no such model"} <= set(ended.err.splitlines())
    assert "SystemExit: was begun with another source model" in ended.err


def test_pieces_side_by_side_that_run_out_of_time_are_said_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(piece: str, *_: object) -> None:
        if piece == "long":
            raise run_pieces.TimeIsUp

    def threads(workers: int, context: BaseContext, *begin: object) -> ThreadPoolExecutor:
        """In place of processes, which would import torch; what one needs to begin must be picklable."""
        assert context.get_start_method() == "spawn"
        pickle.dumps(begin)
        return ThreadPoolExecutor(workers)

    monkeypatch.setattr(run_pieces, "ProcessPoolExecutor", threads)
    options = run_pieces.piece_options("A study.", tmp_path).parse_args(["--at-once", "2"])
    run_pieces.run_pieces({"a": "a", "long": "long"}, options, run, lambda *_: "")
    assert capsys.readouterr().out.splitlines() == ["a", "stopped after inf minutes; the same command goes on"]
