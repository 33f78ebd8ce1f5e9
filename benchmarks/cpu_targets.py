"""Where the engine is on a CPU against its targets: 32 clients x 640 images, one epoch, against the plain loop.

Targets: two workers take at most half the plain loop's wall time; one worker at most 0.65 of its CPU seconds in
float32 and 0.5 in bfloat16 (where the engine has that option). The plain loop runs on one thread with images that are
floats before it starts. Runs alternate; medians of ratios within pairs are compared.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from beside import cpu, engine, plain, wall

from fedwca import Loop
from fedwca.results.store import environment

Work = Callable[[], None]
CLIENTS, IMAGES = 32, 640
TARGETS = {"fp32, 1 worker, CPU": 0.65, "bf16, 1 worker, CPU": 0.5, "fp32, 2 workers, wall": 0.5}


def contenders(
    clients: int, images: int
) -> dict[str, tuple[Callable[[], None], Callable[[Callable[[], None]], float]]]:
    """What is measured by name, and by which clock."""
    found = {
        "fp32, 1 worker, CPU": (engine(clients, images), cpu),
        "fp32, 2 workers, wall": (engine(clients, images, workers=2), wall),
    }
    if "precision" in inspect.signature(Loop).parameters:
        found["bf16, 1 worker, CPU"] = (engine(clients, images, precision="bf16"), cpu)
    return found


def measure(clients: int, images: int, pairs: int) -> dict[str, Any]:
    """Seconds and ratios by target."""
    base, found = plain(clients, images), {}
    base()
    for name, (work, clock) in contenders(clients, images).items():
        work()
        measured = [(clock(base), clock(work)) for _ in range(pairs)]
        ratios = [mine / theirs for theirs, mine in measured]
        found[name] = {
            "plain_seconds": [round(theirs, 3) for theirs, _ in measured],
            "engine_seconds": [round(mine, 3) for _, mine in measured],
            "ratio": round(statistics.median(ratios), 3),
            "target": TARGETS[name],
            "met": statistics.median(ratios) <= TARGETS[name],
            "load_average": round(os.getloadavg()[0], 1),
        }
        print(name, found[name], flush=True)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "cpu_targets.json")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = {
        "what": "seconds of the engine over those of the plain loop, one epoch on fixed labels",
        "clients": given.clients,
        "images": given.images,
        "targets": measure(given.clients, given.images, given.pairs),
        "environment": environment("cpu"),
    }
    given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
