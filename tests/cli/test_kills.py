"""A run killed at any moment, its set-up included, goes on to the same bits by the very command that began it.

A moment is drawn from a seed, over the whole time the run takes: fifty in the slow ring, a few of them in the gate.
Most runs are on small images; a tenth draw their digits first.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests.read_rounds import read_rounds

BENCH = [
    *("bench", "--clients", "1", "--samples", "40", "--rounds", "2", "--epochs", "1", "--device", "cpu", "--quiet"),
    *("--baseline", "fedavg", "--set", "source_training.epochs=1", "--out", "run", "--resume"),
]
LOG = logging.getLogger(__name__)
"""Shown with --log-cli-level=INFO."""
COLD = 10
"""Of so many runs one is on digits, and draws them first; the others are on small images."""
DRAWS = 3
"""Which of them it is: none of those that get SIGTERM."""


@dataclass(frozen=True)
class Whole:
    """A run that nobody stopped."""

    words: tuple[str, ...]
    """Its options besides `BENCH`."""
    cache: Path
    """Holds its images."""
    seconds: float
    result: Any


def run_in(place: Path, words: Sequence[str]) -> None:
    """The command, in a folder, with what it prints in a file."""
    from fedwca.cli import main

    with (place / "log.txt").open("a") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    os.chdir(place)
    os.environ |= {"FEDWCA_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    sys.argv = ["fedwca", *BENCH, *words]
    main()


def begin(place: Path, words: Sequence[str]) -> ForkServerProcess:
    """The run, in a process, a folder and a cache of its own; the process has its libraries already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["fedwca.runs.start_run", "fedwca.cli.console_reporter", "fedwca.cli.printing", __name__]
    )
    process = context.Process(target=run_in, args=(place, words))
    process.start()
    return process


def finish(place: Path, words: Sequence[str]) -> None:
    """Go on until the end, or begin, where nothing was left."""
    process = begin(place, words)
    process.join(240)
    assert process.exitcode == 0, (place / "log.txt").read_text()


def result(place: Path) -> Any:
    """All that decides numbers, and the names of what is there; without times."""
    run = place / "run"
    summary = json.loads((run / "summary.json").read_text())
    config = json.loads((run / "config.json").read_text())
    models = {str(file.relative_to(run)): file.read_bytes() for file in run.glob("checkpoints/*/*")}
    names = sorted(str(file.relative_to(place)) for file in place.rglob("*"))
    return read_rounds(run, without=["seconds"]), {**summary, "timing": 0}, {**config, "places": 0}, models, names


def run_whole(make_folder: pytest.TempPathFactory, *words: str) -> Whole:
    """A run to the end, twice: to keep its images, and to time it as those that are killed are."""
    first, timed = make_folder.mktemp("first"), make_folder.mktemp("timed")
    finish(first, words)
    found = result(first)
    prepare(timed, first / "cache")
    began = time.monotonic()
    finish(timed, words)
    seconds = time.monotonic() - began
    assert result(timed) == found
    return Whole(words, first / "cache", seconds, found)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return run_whole(tmp_path_factory)


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory, shades: Path) -> Whole:
    return run_whole(tmp_path_factory, "--data", str(shades))


def prepare(place: Path, cache: Path) -> None:
    """A cache that has the images, but no source model."""
    shutil.copytree(cache, place / "cache", ignore=shutil.ignore_patterns("sources"), copy_function=os.link)


def kill(place: Path, words: Sequence[str], moment: float, by: signal.Signals) -> bool:
    """Begin the run and end its process after so many seconds; whether that came before its end."""
    process = begin(place, words)
    process.join(moment)
    if process.exitcode is not None:
        assert process.exitcode == 0, (place / "log.txt").read_text()
        return False
    assert process.pid is not None
    os.kill(process.pid, by)
    process.join(60)
    assert process.exitcode in (-by, 130, 0)  # by the signal, by what it makes of it, or at its end just then
    return process.exitcode != 0


def check(seed: int, place: Path, whole: Whole) -> None:
    """One kill, and what becomes of it."""
    draw = random.Random(seed)
    by = signal.SIGTERM if seed % 5 == 4 else signal.SIGKILL
    if seed % COLD != DRAWS:
        prepare(place, whole.cache)
    moment = draw.uniform(0, whole.seconds)
    while not kill(place, whole.words, moment, by):  # it was quicker than the one that was timed
        shutil.rmtree(place / "run")
        moment = draw.uniform(0, moment)
    left = sorted(file.name for file in (place / "run").glob("*"))
    LOG.info("seed %d: %s after %.2f of %.2f s, left %s", seed, by.name, moment, whole.seconds, " ".join(left) or None)
    finish(place, whole.words)
    assert result(place) == whole.result


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_costs_nothing(seed: int, tmp_path: Path, squares: Whole) -> None:
    check(seed, tmp_path, squares)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(50))
def test_no_kill_costs_anything(seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    check(seed, tmp_path, request.getfixturevalue("digits" if seed % COLD == DRAWS else "squares"))
