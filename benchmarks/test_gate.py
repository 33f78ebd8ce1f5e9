"""The engine must stay quicker than the plain loop: ``pytest benchmarks -m gate``; both in one process, in turn.

``gate.json`` holds the speed-ups of twelve runs (CPU seconds of the plain loop over the engine's). The gate is half of
the smallest of them, and three tries: it stops a change that doubles the cost, and no noise. After a change of speed
that is meant: ``python benchmarks/test_gate.py`` writes the file anew.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
import torch
from beside import cpu, engine, plain

from fedwca.results.store import environment

FILE = Path(__file__).parent / "gate.json"
CLIENTS, IMAGES, PAIRS, RUNS, TRIES = 4, 128, 5, 12, 3


def speed_up() -> float:
    """Median over alternating pairs of the plain loop's CPU seconds over the engine's."""
    slow, quick = plain(CLIENTS, IMAGES), engine(CLIENTS, IMAGES)
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


def passes(limit: float, tries: int = TRIES) -> list[float]:
    """Speed-ups until one reaches the limit, at most as many as there are tries."""
    seen: list[float] = []
    while len(seen) < tries and not (seen and seen[-1] >= limit):
        seen.append(speed_up())
    return seen


@pytest.mark.gate
def test_the_engine_is_not_half_as_quick_as_it_was() -> None:
    limit = min(json.loads(FILE.read_text())["speed_ups"]) / 2
    seen = passes(limit)
    print(f"speed-up over the plain loop: {seen[-1]:.2f}, the gate is {limit:.2f}")
    assert seen[-1] >= limit, f"speed-ups {[round(x, 2) for x in seen]}, at least {limit:.2f} is asked for"


def main() -> None:
    torch.set_num_threads(1)
    found = []
    for _ in range(RUNS):
        found.append(round(speed_up(), 3))
        print(found[-1], flush=True)
    result = {
        "what": "CPU seconds of benchmarks/plain.py over those of the engine on the same epochs, median of pairs",
        "clients": CLIENTS,
        "images": IMAGES,
        "pairs": PAIRS,
        "speed_ups": found,
        "environment": environment("cpu"),
    }
    FILE.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
