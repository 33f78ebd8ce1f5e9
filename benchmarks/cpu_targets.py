"""Where the engine is on a CPU against its targets: 32 clients x 640 images, one epoch, against the plain loop.

    python benchmarks/cpu_targets.py

Targets: two workers take at most half the plain loop's wall time; one worker at most 0.65 of its CPU seconds in
float32 and 0.5 in bfloat16. The plain loop runs on one thread with images that are floats before it starts. Runs
alternate, and so does who begins; medians of ratios within pairs are compared. Wall time says little on a machine that
has other work to do, so the load average stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from beside import cpu, engine, plain, wall

from fedwca.results.environment import describe_environment

Work = Callable[[], None]
CLIENTS, IMAGES = 32, 640
TARGETS = {"fp32, 1 worker, CPU": 0.65, "bf16, 1 worker, CPU": 0.5, "fp32, 2 workers, wall": 0.5}


def contenders(clients: int, images: int) -> dict[str, tuple[Work, Callable[[Work], float]]]:
    """What is measured by name, and by which clock."""
    return {
        "fp32, 1 worker, CPU": (engine(clients, images), cpu),
        "bf16, 1 worker, CPU": (engine(clients, images, precision="bf16"), cpu),
        "fp32, 2 workers, wall": (engine(clients, images, workers=2), wall),
    }


def pair(base: Work, work: Work, clock: Callable[[Work], float], first: bool) -> tuple[float, float]:
    """Seconds of the plain loop and of the engine, one after the other; ``first``: the plain loop begins."""
    if first:
        theirs = clock(base)
        return theirs, clock(work)
    mine = clock(work)
    return clock(base), mine


def measure(clients: int, images: int, pairs: int, only: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Seconds and ratios by target; once more after each of them, so that what was measured is kept.

    Args:
        clients: K.
        images: of each.
        pairs: of runs for each target.
        only: names of targets; empty: all.
    """
    base, found = plain(clients, images), dict[str, Any]()
    base()
    for name, (work, clock) in contenders(clients, images).items():
        if only and name not in only:
            continue
        work()
        before = os.getloadavg()[0]
        measured = [pair(base, work, clock, number % 2 == 0) for number in range(pairs)]
        ratios = [mine / theirs for theirs, mine in measured]
        found[name] = {
            "plain_seconds": [round(theirs, 3) for theirs, _ in measured],
            "engine_seconds": [round(mine, 3) for _, mine in measured],
            "ratio": round(statistics.median(ratios), 3),
            "target": TARGETS[name],
            "met": statistics.median(ratios) <= TARGETS[name],
            "load_average": round(max(before, os.getloadavg()[0]), 1),
        }
        print(name, found[name], flush=True)
        yield found


def instructions() -> list[str]:
    """What the processor has for bfloat16; without any of it the bf16 target cannot be met."""
    try:
        text = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return []
    return [name for name in ("avx512_bf16", "amx_bf16") if name in text]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "cpu_targets.json")
    parser.add_argument("--only", action="append", choices=list(TARGETS), default=[], help="one target; repeat")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for targets in measure(given.clients, given.images, given.pairs, given.only):
        result = {
            "what": "seconds of the engine over those of the plain loop, one epoch on fixed labels",
            "clients": given.clients,
            "images": given.images,
            "bf16_instructions": instructions(),
            "targets": targets,
            "environment": describe_environment("cpu"),
        }
        given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
