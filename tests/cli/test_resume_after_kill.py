"""A run that SIGKILL or SIGTERM ended goes on to the same bits as one that was not stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ..fork_server import CommandLine, Ended, ForkServer
from .conftest import SMALL, THREE_ROUNDS
from .resumed_runs import TOGETHER, Make, result, resume

Apart = Callable[[list[str], str], Ended]
# Kills fedwca by SIGKILL at the n-th write of a kind, given as KIND:N before its words. For "checkpoint" and "half a
# line" the file is cut off; after "kept" and "line" it is whole.
DEADLY = """
import json, os, signal, sys
from fedwca.core import tensor_files
from fedwca.results import checkpoints
from fedwca.results import write_run as store
where, left = sys.argv.pop(1).split(":")
left = int(left)

def now(kind):
    global left
    left -= kind == where
    return kind == where and left == 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def save_file(tensors, path, metadata, real=tensor_files.save_file):
    real(tensors, path, metadata)
    if now("checkpoint"):
        os.truncate(path, os.path.getsize(path) // 2)
        die()

def save(self, *given, real=checkpoints.Checkpoints.save, **more):
    real(self, *given, **more)
    if now("kept"):
        die()

def append(self, record, real=store.RunFolder.append):
    real(self, record)
    rounds = self.path / "rounds.jsonl"
    if now("half a line"):
        os.truncate(rounds, rounds.stat().st_size - 40)
        die()
    if now("line"):
        die()

tensor_files.save_file, checkpoints.Checkpoints.save, store.RunFolder.append = save_file, save, append
"""
# Sends fedwca SIGTERM after the first round and again while it ends, as from `timeout`.
TERMINATED = """
import os, signal
from fedwca.results import write_run
from fedwca.runs import execute_run

def append(self, record, real=write_run.RunFolder.append):
    real(self, record)
    if record["round"] == 0:
        os.kill(os.getpid(), signal.SIGTERM)

def write_summary(*given, real=execute_run.write_summary, **more):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*given, **more)

write_run.RunFolder.append, execute_run.write_summary = append, write_summary
"""


@pytest.fixture
def apart(fork_server: ForkServer, tmp_path: Path) -> Apart:
    """Runs a command in a process of its own, after some Python code."""
    return lambda words, before: fork_server.run(CommandLine(words, str(tmp_path), dict(os.environ), before))


def killed(apart: Apart, arguments: list[str], write: str) -> None:
    """Run a command that is killed at a write, ``KIND:N`` of `DEADLY`."""
    ended = apart([write, *arguments], DEADLY)
    assert ended.code == 128 + signal.SIGKILL, ended.err


def test_a_run_killed_three_times_ends_in_the_same_bits(
    finished_run: Path, shades: Path, tmp_path: Path, apart: Apart
) -> None:
    folder = tmp_path / "run"
    words = ["bench", "--data", str(shades), *SMALL, *THREE_ROUNDS, "--json", "--out", str(folder)]
    killed(apart, words, "checkpoint:3")
    assert list(folder.glob("checkpoints/*/.*/*.safetensors"))
    killed(apart, ["resume", str(folder), "--json"], "half a line:3")
    killed(apart, ["resume", str(folder), "--json"], "kept:2")
    assert not (folder / "summary.json").exists()
    run = resume(folder, "--json")
    assert run.code == 0, run.err
    assert result(folder) == result(finished_run)
    assert json.loads(run.out) == run.summary


def test_sigterm_ends_a_run_as_ctrl_c_does(finished_run: Path, shades: Path, tmp_path: Path, apart: Apart) -> None:
    folder = tmp_path / "run"
    words = ["bench", "--data", str(shades), *SMALL, *THREE_ROUNDS, "--quiet", "--out", str(folder)]
    ended = apart(words, TERMINATED)
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    message = f"Stopped; 1 round is kept in {folder}, with a summary; continue with: fedwca resume {folder}"
    assert ended.err.splitlines()[-1] == message
    assert json.loads((folder / "summary.json").read_text())["complete"] is False
    assert (folder / "overview.png").exists()
    assert resume(folder).code == 0
    assert result(folder) == result(finished_run)


def test_sigterm_does_what_it_did_once_a_run_has_ended(bench: Make) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    assert bench("--rounds", "1").code == 0
    assert signal.getsignal(signal.SIGTERM) is handler


def test_trials_that_go_together_go_on_to_the_same_bits(
    bench: Make, shades: Path, tmp_path: Path, apart: Apart
) -> None:
    # Sums over other groups of trials differ in their last digits, so a trial that is ahead of the others goes back to
    # the last round that all of them have.
    uninterrupted = bench(*TOGETHER, "--json")
    assert uninterrupted.code == 0, uninterrupted.err
    folder = tmp_path / "run"
    # The first of two trials has its last checkpoint of FedAvg, the second has not.
    killed(apart, ["bench", "--data", str(shades), *SMALL, *TOGETHER, "--json", "--out", str(folder)], "kept:5")
    assert len(list(folder.glob("checkpoints/0-0-fedavg/*"))) == 2
    # Both do that round again. Of the next method, round 0 of the first trial is recorded but has no checkpoint.
    killed(apart, ["resume", str(folder), "--json"], "line:5")
    run = resume(folder)
    assert run.code == 0, run.err
    assert "Going on after 4 of 12 rounds" in run.out
    assert result(folder) == result(uninterrupted.folder)
    assert {len(list(unit.iterdir())) for unit in folder.glob("checkpoints/*")} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_kill_ends_in_the_same_bits(
    finished_run: Path, shades: Path, tmp_path: Path, apart: Apart, seed: int
) -> None:
    folder, draw = tmp_path / "run", random.Random(seed)
    arguments = ["bench", "--data", str(shades), *SMALL, *THREE_ROUNDS, "--json", "--out", str(folder)]
    if seed % 2:
        killed(apart, arguments, f"{draw.choice(['checkpoint', 'kept', 'half a line', 'line'])}:{draw.randint(1, 9)}")
    else:
        process = subprocess.Popen([sys.executable, "-m", "fedwca", *arguments], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 200
        while not (folder / "config.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 4))
        process.kill()
        process.wait(timeout=30)
    assert resume(folder, "--json").code == 0
    assert result(folder) == result(finished_run)
