"""The engines must stay as quick as they are: ``pytest benchmarks -m gate`` fails where one takes a fifth more.

Each engine is timed beside `hand_written.py`, which uses the same kernels, so the ratio depends on the library and
little on the CPU. A turn runs reference, engine, engine, reference, half a second of CPU time in all, so that other
work on the machine slows both. Each turn is a vote: within the limit or not. The gate ends when one side leads by ten
votes, which happens soon if the engine is far from the limit, or after sixty turns by majority.

``gate.json`` holds the usual ratio of each engine; the limit is a tenth above it. After an intended change of speed,
run ``python benchmarks/gate_runs.py``.
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
"""Clients trained at a time by engine: one for the loop, so that it uses one core; None: all."""
MARGIN, LEAD, MOST = 1.1, 10, 60
"""Ratio of the limit to the usual ratio, lead in votes that decides, and largest number of turns."""

Work = Callable[[], None]


def turns(kind: str, wrap: Callable[[Work], Work] = lambda work: work) -> Iterator[float]:
    """Yield the ratio of an engine's CPU seconds to those of the reference, one turn after another without end.

    Args:
        kind: of engine.
        wrap: turns the engine's round into the work that is measured.
    """
    reference, engine_work = BY_ENGINE[kind](CLIENTS, IMAGES), engine(CLIENTS, IMAGES, workers=WORKERS[kind], kind=kind)
    work = wrap(engine_work)
    for warm_up in (reference, work) * 2:
        warm_up()
    while True:
        first, second, third, fourth = (cpu(timed) for timed in (reference, work, work, reference))
        yield (second + third) / (first + fourth)


@dataclass(frozen=True)
class Verdict:
    """The result of a gate, and the ratio of each turn."""

    passes: bool
    ratios: list[float]


def decide(ratios: Iterator[float], limit: float) -> Verdict:
    """Decide whether most ratios are within the limit, taking no more of them than needed.

    >>> decide(iter([1.0] * 10), 1.1).passes, decide(iter([1.0] + [1.2] * 11), 1.1).passes
    (True, False)
    """
    observed: list[float] = []
    lead = 0
    while abs(lead) < LEAD and len(observed) < MOST:
        observed.append(next(ratios))
        lead += 1 if observed[-1] <= limit else -1
    return Verdict(lead >= 0, observed)


@pytest.mark.gate
@pytest.mark.parametrize("kind", WORKERS)
def test_an_engine_takes_no_fifth_more_than_it_took(kind: str) -> None:
    limit = MARGIN * json.loads(FILE.read_text())["engines"][kind]["ratio"]
    verdict = decide(turns(kind), limit)
    message = (
        f"{kind} over the hand-written loop: {sorted(round(x, 2) for x in verdict.ratios)}, the limit is {limit:.2f}"
    )
    print(message)
    assert verdict.passes, message
