"""The engines must stay as quick as they are: ``pytest benchmarks -m gate`` fails where one takes a fifth more.

Each engine is timed beside `hand_written.py`, which uses the same kernels, so the ratio depends on the library and
little on the CPU. A turn runs reference, engine, engine, reference, half a second of CPU time in all, so that other
work on the machine slows both. Each turn is a vote: within the limit or not. The gate ends when one side leads by ten
votes, which happens soon if the engine is far from the limit, or after sixty turns by majority.

``gate.json`` holds the usual ratio of each engine, the `conditions` and the commit at which it was measured; the limit
is a tenth above it. Other machines on the same host can slow an engine more than the reference. So an engine that is
over the limit is timed again, by the same rules, beside the engine of that commit: only if it takes a tenth more than
that is the gate shut. After an intended change of speed, run ``python benchmarks/gate_runs.py``.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hand_written
import plain
import pytest
from beside import cpu, images
from checkouts import ROOT
from gated_engine import CLIENTS, IMAGES, WORKERS, engine_round, seconds_at
from hand_written import BY_ENGINE

FILE = Path(__file__).parent / "gate.json"
MARGIN, LEAD, MOST = 1.1, 10, 60
"""Ratio of the limit to the usual ratio, lead in votes that decides, and largest number of turns."""

REFERENCE = (hand_written, plain, images, cpu)
"""Modules and functions of the loops that are written by hand, of the images that they read, and of the clock."""

Timed = Callable[[], float]
"""Does its work once and returns the CPU seconds."""


def conditions() -> dict[str, Any]:
    """What a usual ratio depends on besides the engine: sizes, rules, and SHA-256 of `REFERENCE`, 16 digits each."""
    texts = {each.__name__: inspect.getsource(each) for each in REFERENCE}
    return {
        "clients": CLIENTS,
        "images": IMAGES,
        "margin": MARGIN,
        "lead": LEAD,
        "most_turns": MOST,
        "reference": {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()},
    }


def turns(reference: Timed, measured: Timed) -> Iterator[float]:
    """Yield the ratio of the measured CPU seconds to those of the reference, one turn after another without end."""
    for warm_up in (reference, measured) * 2:
        warm_up()
    while True:
        first, second, third, fourth = (timed() for timed in (reference, measured, measured, reference))
        yield (second + third) / (first + fourth)


@dataclass(frozen=True)
class Verdict:
    """The result of a gate, and the ratio of each turn."""

    passes: bool
    ratios: list[float]

    def describe(self, limit: float) -> str:
        """Describe the ratios beside the limit."""
        return f"{sorted(round(x, 2) for x in self.ratios)}, the limit is {limit:.2f}"


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


def beside_hand_written(kind: str, limit: float, loss: str = "as it is") -> Verdict:
    """Decide whether an engine takes at most ``limit`` times as long as the loop that is written by hand.

    Args:
        kind: of engine.
        limit: largest ratio of CPU seconds.
        loss: of speed, see `gated_engine.engine_round`.
    """
    reference, measured = BY_ENGINE[kind](CLIENTS, IMAGES), engine_round(kind, loss)
    return decide(turns(partial(cpu, reference), partial(cpu, measured)), limit)


def beside_commit(kind: str, commit: str, loss: str = "as it is") -> Verdict:
    """Decide whether an engine takes at most a tenth more than it took at a commit; ``loss`` as above.

    Raises:
        SystemExit: the commit is not in this repository or cannot be timed.
    """
    with seconds_at(commit, kind) as reference, seconds_at(str(ROOT), kind, loss) as measured:
        return decide(turns(reference, measured), MARGIN)


@pytest.mark.gate
@pytest.mark.parametrize("kind", WORKERS)
def test_an_engine_takes_no_fifth_more_than_it_took(kind: str) -> None:
    usual = json.loads(FILE.read_text())["engines"][kind]
    limit, commit = MARGIN * usual["ratio"], usual["environment"]["commit"]
    verdict = beside_hand_written(kind, limit)
    print(f"{kind} over the hand-written loop: {verdict.describe(limit)}")
    if verdict.passes:
        return
    try:
        verdict = beside_commit(kind, commit)
    except SystemExit as error:
        pytest.fail(f"the {kind} engine is too slow; whether the machine is the cause cannot be told: {error}")
    message = f"{kind} over itself at {commit}: {verdict.describe(MARGIN)}"
    print(message)
    assert verdict.passes, message
