"""The engines must stay as quick beside the plain loop as they are: ``pytest benchmarks -m gate``; in one process.

``gate.json`` holds the speed-ups of twelve runs of each engine (CPU seconds of the plain loop over the engine's; below
1 the engine takes longer, as the stacked one does on a CPU). The gate is half of the smallest of them, and three tries:
it stops a change that doubles the cost, and no noise. After a change of speed that is meant:
``python benchmarks/test_gate.py`` writes the file anew, with names of engines only their part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

import pytest
import torch
from beside import cpu, engine, plain
from provenance import provenance

FILE = Path(__file__).parent / "gate.json"
CLIENTS, IMAGES, PAIRS, RUNS, TRIES = 4, 128, 5, 12, 3
WORKERS = {"loop": 1, "stacked": None}
"""Clients at a time, by engine: the loop on one core, everybody stacked; None: all."""


def speed_up(kind: str) -> float:
    """Median over alternating pairs of the plain loop's CPU seconds over an engine's."""
    slow, quick = plain(CLIENTS, IMAGES), engine(CLIENTS, IMAGES, workers=WORKERS[kind], kind=kind)
    slow()
    quick()
    ratios = []
    for pair in range(PAIRS):
        if pair % 2:
            mine = cpu(quick)
            ratios.append(cpu(slow) / mine)
        else:
            ratios.append(cpu(slow) / cpu(quick))
    return statistics.median(ratios)


def passes(kind: str, limit: float, tries: int = TRIES) -> list[float]:
    """Speed-ups until one reaches the limit, at most as many as there are tries."""
    seen: list[float] = []
    while len(seen) < tries and not (seen and seen[-1] >= limit):
        seen.append(speed_up(kind))
    return seen


@pytest.mark.gate
@pytest.mark.parametrize("kind", WORKERS)
def test_an_engine_is_not_half_as_quick_as_it_was(kind: str) -> None:
    limit = min(json.loads(FILE.read_text())["engines"][kind]["speed_ups"]) / 2
    seen = passes(kind, limit)
    print(f"speed-up of {kind} over the plain loop: {seen[-1]:.2f}, the gate is {limit:.2f}")
    assert seen[-1] >= limit, f"speed-ups {[round(x, 2) for x in seen]}, at least {limit:.2f} is asked for"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("engines", nargs="*", choices=[*WORKERS, []], help="default: all")
    given = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "what": "CPU seconds of benchmarks/plain.py over those of the engine on the same epochs, median of pairs",
        "clients": CLIENTS,
        "images": IMAGES,
        "pairs": PAIRS,
        "engines": json.loads(FILE.read_text())["engines"] if given.engines else {},
    }
    for kind in given.engines or WORKERS:
        found, loads = [], []
        for _ in range(RUNS):
            loads.append(round(os.getloadavg()[0], 1))
            found.append(round(speed_up(kind), 3))
            print(kind, found[-1], flush=True)
        entry = {"speed_ups": found, "load_average": [min(loads), max(loads)], "environment": provenance("cpu")}
        result["engines"][kind] = entry
    FILE.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
