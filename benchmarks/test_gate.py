"""The engines must stay as quick as they are: ``pytest benchmarks -m gate`` fails where one takes a fifth more.

Each engine runs beside `hand_written.py`, which uses the same kernels, so that their ratio depends on the library and
little on the CPU. They take turns, reference, engine, engine, reference, half a second of CPU time in all, so that
other work on the machine slows both. Each turn votes: within the limit or not. The gate ends when one side leads by
ten votes, which is soon where the engine is far from the limit, or after sixty turns by majority.

``gate.json`` holds the usual ratio of each engine; the limit is a tenth above it. After a change of speed that is
meant: ``python benchmarks/gate_runs.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from beside import cpu, engine
from hand_written import BY_ENGINE

FILE = Path(__file__).parent / "gate.json"
CLIENTS, IMAGES = 2, 128
WORKERS = {"loop": 1, "stacked": None}
"""Clients at a time, by engine: the loop on one core, everybody stacked; None: all."""
MARGIN, LEAD, MOST = 1.1, 10, 60
"""What the limit is over the usual ratio, votes that decide, and most turns."""

Work = Callable[[], None]


def turns(kind: str, altered: Callable[[Work], Work] = lambda work: work) -> Iterator[float]:
    """CPU seconds of an engine over those of the reference, turn after turn without end.

    Args:
        kind: of engine.
        altered: what is measured in place of the engine's round.
    """
    reference, own = BY_ENGINE[kind](CLIENTS, IMAGES), engine(CLIENTS, IMAGES, workers=WORKERS[kind], kind=kind)
    work = altered(own)
    for warm in (reference, work) * 2:
        warm()
    while True:
        first, one, other, last = (cpu(some) for some in (reference, work, work, reference))
        yield (one + other) / (first + last)


@dataclass(frozen=True)
class Verdict:
    """What the turns of a gate said."""

    passes: bool
    ratios: list[float]


def decide(ratios: Iterator[float], limit: float) -> Verdict:
    """Whether most ratios are within the limit, by no more of them than it takes.

    >>> decide(iter([1.0] * 10), 1.1).passes, decide(iter([1.0] + [1.2] * 11), 1.1).passes
    (True, False)
    """
    seen: list[float] = []
    lead = 0
    while abs(lead) < LEAD and len(seen) < MOST:
        seen.append(next(ratios))
        lead += 1 if seen[-1] <= limit else -1
    return Verdict(lead >= 0, seen)


@pytest.mark.gate
@pytest.mark.parametrize("kind", WORKERS)
def test_an_engine_takes_no_fifth_more_than_it_took(kind: str) -> None:
    limit = MARGIN * json.loads(FILE.read_text())["engines"][kind]["ratio"]
    found = decide(turns(kind), limit)
    said = f"{kind} over the hand-written loop: {sorted(round(x, 2) for x in found.ratios)}, the limit is {limit:.2f}"
    print(said)
    assert found.passes, said
