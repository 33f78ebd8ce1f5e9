"""How fast engines usually are beside the hand-written loop, and whether the gate tells a loss from noise.

    python benchmarks/gate_runs.py [loop] [stacked]

First the usual ratio of each engine is measured. Then both halves of the gate, beside the hand-written loop and beside
the engine of the commit that is checked out, are run as the engine is, and with two losses made on purpose: a fifth
more CPU seconds, spent on nothing, and channels-first order of images. Writes `gate.json`, in which engines that are
not named keep their old part. Run it while the machine has other work, because the gate must be right under load.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from beside import cpu
from gated_engine import CLIENTS, IMAGES, WORKERS, engine_round
from hand_written import BY_ENGINE
from keep import keep
from provenance import provenance
from test_gate import FILE, MARGIN, Verdict, beside_commit, beside_hand_written, conditions, turns

USUAL, RUNS, SLOWED_RUNS = 50, 50, 25
COUNTS = {"as it is": RUNS, "a fifth more CPU seconds": SLOWED_RUNS, "channels first": SLOWED_RUNS // 5}
"""How often the gate is run as the engine is, and with each loss of speed."""


def runs(count: int, run: Callable[[], Verdict]) -> dict[str, Any]:
    """Run a half of the gate ``count`` times: alarms, and least, median and most of turns and of median ratios.

    CPU seconds include those of processes that it started.
    """
    alarms, turn_counts, ratios, loads, started = 0, list[int](), list[float](), list[float](), sum(os.times()[:4])
    for _ in range(count):
        loads.append(round(os.getloadavg()[0], 1))
        verdict = run()
        alarms += not verdict.passes
        turn_counts.append(len(verdict.ratios))
        ratios.append(round(statistics.median(verdict.ratios), 3))
    return {
        "runs": count,
        "alarms": alarms,
        "turns": [min(turn_counts), statistics.median(turn_counts), max(turn_counts)],
        "ratios": [min(ratios), round(statistics.median(ratios), 3), max(ratios)],
        "load_average": [min(loads), max(loads)],
        "cpu_seconds_a_run": round((sum(os.times()[:4]) - started) / count, 1),
    }


def measure(kind: str, environment: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An engine's part of the file, yielded again after each of its measurements so that it can be written."""
    reference, measured = (partial(cpu, work) for work in (BY_ENGINE[kind](CLIENTS, IMAGES), engine_round(kind)))
    low, middle, high = (round(x, 3) for x in statistics.quantiles(islice(turns(reference, measured), USUAL), n=4))
    part: dict[str, Any] = {"ratio": middle, "quarters": [low, high], "conditions": conditions()}
    part["environment"] = environment
    halves = {
        "beside the hand-written loop": partial(beside_hand_written, kind, MARGIN * middle),
        "beside the engine of a commit": partial(beside_commit, kind, environment["commit"]),
    }
    for half, verdict_on in halves.items():
        part[half] = {}
        for loss, count in COUNTS.items():
            part[half][loss] = runs(count, partial(verdict_on, loss))
            print(kind, middle, half, loss, part[half][loss], flush=True)
            yield part


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("engines", nargs="*", choices=[*WORKERS, []], help="default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    environment = provenance("cpu")
    if environment["commit"] is None or environment["commit"].endswith("+"):
        parser.error("commit first: the gate compares with the commit at which usual ratios were measured")
    result = {
        "what": "CPU seconds of an engine's round over those of hand_written.py, median and quarters of turns; then "
        "runs of the gate: least, median and most of their turns and of their median ratios",
        "engines": json.loads(FILE.read_text())["engines"] if options.engines else {},
    }
    for kind in options.engines or WORKERS:
        for part in measure(kind, environment):
            result["engines"][kind] = part
            keep(FILE, result)


if __name__ == "__main__":
    main()
