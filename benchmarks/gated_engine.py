"""The training that the speed gate times, in this process or, of any commit, in a process of its own.

Such a process imports fedwca of that commit and the benchmarks of this checkout, so all do the same work. For each line
that it reads it trains once and prints the CPU seconds, so rounds of two commits can be timed in turn. All such
processes run on one core, because cores that share their time with other work are slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beside import cpu, engine
from checkouts import checked_out
from losses_of_speed import LOSSES, Work

CLIENTS, IMAGES = 2, 128
WORKERS = {"loop": 1, "stacked": None}
"""Clients trained at a time by engine: one for the loop, so that it uses one core; None: all."""


def engine_round(kind: str, loss: str = "as it is") -> Work:
    """A function that trains the clients for one epoch on an engine, with one of `losses_of_speed.LOSSES`."""
    return LOSSES[loss](engine(CLIENTS, IMAGES, workers=WORKERS[kind], kind=kind))


@contextmanager
def seconds_at(commit: str, kind: str, loss: str = "as it is") -> Iterator[Callable[[], float]]:
    """A function that trains once on the engine of a commit and returns the CPU seconds.

    Args:
        commit: commit, branch or a checked-out folder.
        kind: of engine.
        loss: of speed, made on purpose; see `engine_round`.

    Raises:
        SystemExit: there is no such commit, or its process failed.
    """
    with checked_out(commit) as (checkout,):
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), kind, loss],
            env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def seconds() -> float:
            try:
                print(file=requests, flush=True)
                return float(answers.readline())
            except (OSError, ValueError) as error:
                raise SystemExit(f"the {kind} engine of commit {commit} cannot be timed: {error}") from error

        with process:  # closes its input, which ends it
            yield seconds


def answer_requests(kind: str, loss: str) -> None:
    """Train once for each line of the input and print its CPU seconds."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    work = engine_round(kind, loss)
    for _ in sys.stdin:
        print(cpu(work), flush=True)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    answer_requests(*sys.argv[1:])
