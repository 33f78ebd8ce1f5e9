"""A run killed at any moment, its set-up included, ends in the same bits when its command is given again.

The moment is drawn from a seed, over the whole time that the run takes: fifty seeds in the slow ring, two in the gate.
Most runs are on small images; one in ten is on digits, which it has to draw first.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.read_rounds import read_rounds

from ..conftest import SMALL_MODEL
from ..fork_server import CommandLine, ForkServer

BENCH = [
    *("bench", "--clients", "1", "--samples", "40", "--rounds", "2", "--epochs", "1", "--device", "cpu", "--quiet"),
    *("--baseline", "fedavg", "--model", SMALL_MODEL, "--set", "source_training.epochs=1", "--out", "run", "--resume"),
]
LOG = logging.getLogger(__name__)
"""Shown with --log-cli-level=INFO."""
COLD = 10
"""Of so many seeds one has a run on digits, which draws them first; the others have one on small images."""
DRAWS = 3
"""The remainder of that seed by `COLD`; it gets SIGKILL, not SIGTERM."""


@dataclass(frozen=True)
class Whole:
    """An uninterrupted run."""

    words: tuple[str, ...]
    """Its options besides `BENCH`."""
    cache: Path
    """Holds its images."""
    seconds: float
    result: Any


def finish(server: ForkServer, place: Path, words: Sequence[str]) -> float:
    """Continue the run to its end, or begin it where nothing was left; the seconds that took."""
    ended = server.run(command(place, words))
    assert ended.code == 0, ended.err
    return ended.seconds


def command(place: Path, words: Sequence[str], **options: Any) -> CommandLine:
    """The run, in a process, a folder and a cache of its own."""
    environment = {**os.environ, "FEDWCA_CACHE": str(place / "cache")}
    return CommandLine([*BENCH, *words], str(place), environment, **options)


def result(place: Path) -> Any:
    """Rounds, summary, configuration, models and the names of all files, without times and places."""
    run = place / "run"
    summary = json.loads((run / "summary.json").read_text())
    config = json.loads((run / "config.json").read_text())
    models = {str(file.relative_to(run)): file.read_bytes() for file in run.glob("checkpoints/*/*")}
    names = sorted(str(file.relative_to(place)) for file in place.rglob("*"))
    return read_rounds(run, without=["seconds"]), {**summary, "timing": 0}, {**config, "places": 0}, models, names


def run_whole(server: ForkServer, make_folder: pytest.TempPathFactory, *words: str) -> Whole:
    """Run to the end twice: first to keep the images, then, as in the runs that are killed, with these to time it."""
    first, timed = make_folder.mktemp("first"), make_folder.mktemp("timed")
    finish(server, first, words)
    expected = result(first)
    prepare(timed, first / "cache")
    seconds = finish(server, timed, words)
    assert result(timed) == expected
    return Whole(words, first / "cache", seconds, expected)


@pytest.fixture(scope="module")
def digits(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return run_whole(fork_server, tmp_path_factory)


@pytest.fixture(scope="module")
def squares(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory, shades: Path) -> Whole:
    return run_whole(fork_server, tmp_path_factory, "--data", str(shades))


def prepare(place: Path, cache: Path) -> None:
    """Give a folder a cache that has the images, but no source model."""
    shutil.copytree(cache, place / "cache", ignore=shutil.ignore_patterns("sources"), copy_function=os.link)


def kill(server: ForkServer, place: Path, words: Sequence[str], moment: float, by: signal.Signals) -> bool:
    """Begin the run and send ``by`` to its process after ``moment`` seconds; whether that stopped it before its end."""
    ended = server.run(command(place, words, kill_after=moment, kill_by=by))
    assert ended.code in (128 + by, 130, 0), ended.err  # by the signal, by its handler, or at its end
    return ended.code != 0


def check(server: ForkServer, seed: int, place: Path, whole: Whole) -> None:
    """Kill a run at a moment drawn from ``seed``, continue it, and compare the result with the uninterrupted run's."""
    draw = random.Random(seed)
    by = signal.SIGTERM if seed % 5 == 4 else signal.SIGKILL
    if seed % COLD != DRAWS:
        prepare(place, whole.cache)
    moment = draw.uniform(0, whole.seconds)
    while not kill(server, place, whole.words, moment, by):
        # It ended before the moment: it was quicker than the timed one.
        shutil.rmtree(place / "run")
        moment = draw.uniform(0, moment)
    files = sorted(file.name for file in (place / "run").glob("*"))
    LOG.info("seed %d: %s after %.2f of %.2f s, left %s", seed, by.name, moment, whole.seconds, " ".join(files) or None)
    finish(server, place, whole.words)
    assert result(place) == whole.result


@pytest.mark.parametrize("seed", range(2))
def test_kills_end_in_same_bits(seed: int, tmp_path: Path, fork_server: ForkServer, squares: Whole) -> None:
    check(fork_server, seed, tmp_path, squares)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(50))
def test_all_kills_end_in_same_bits(
    seed: int, tmp_path: Path, fork_server: ForkServer, request: pytest.FixtureRequest
) -> None:
    check(fork_server, seed, tmp_path, request.getfixturevalue("digits" if seed % COLD == DRAWS else "squares"))
