"""Where rounds are on a CPU against their targets, and what share of a core's peak they reach.

    python benchmarks/cpu_targets.py

Targets: one worker takes at most 0.55 of the CPU seconds of the plain loop in float32 and 0.5 in bfloat16; two
workers at most half its wall time; a FedWCA round at most 1.30 FedAvg rounds. The plain loop runs on one thread with
images that are floats before it starts; beside it stands the loop that is written by hand with the engine's kernels,
which says what the library itself costs. Runs alternate, and so does who begins; medians of ratios within pairs are
compared. Wall time says little on a machine that has other work to do, so the load average stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from beside import cpu, engine, plain, wall
from counts import Setting
from hand_written import loop
from keep import keep
from provenance import provenance
from torch.utils.flop_counter import FlopCounterMode

Work = Callable[[], None]
Clock = Callable[[Work], float]
CLIENTS, IMAGES, PAIRS = 8, 640, 7
FEW, CLUSTERS, EPOCHS, BATCH = 4, 4, 5, 64
"""Clients, clusters and epochs of a FedWCA round, whose cost in FedAvg rounds does not depend on how many clients."""
SIDE, PRODUCTS = 1024, 20
"""Of the square matrices whose product stands for a core's peak, and products at a time."""
TARGETS = {
    "fp32, 1 worker, CPU": 0.55,
    "bf16, 1 worker, CPU": 0.5,
    "fp32, 2 workers, wall": 0.5,
    "FedWCA over FedAvg, CPU": 1.3,
}
PEAK = "share of the peak"
OUT = Path(__file__).parent / "results" / "cpu_targets.json"


def fedwca_and_fedavg(images: int) -> tuple[Work, Work]:
    """A FedWCA round and a FedAvg round, of the same clients; no image is mixed, so that both train on as many."""
    settings = [Setting(name, FEW, CLUSTERS, EPOCHS, images, BATCH) for name in ("wca", "fedavg")]
    ours, theirs = (lambda setting=setting: setting.run(1) and None for setting in settings)
    return ours, theirs


def contenders(clients: int, images: int) -> dict[str, Callable[[], tuple[Work, Work, Clock]]]:
    """What is measured by name, made when it is: work, what it is compared with, and by which clock."""
    base = lambda: plain(clients, images)  # noqa: E731
    return {
        "fp32, 1 worker, CPU": lambda: (engine(clients, images), base(), cpu),
        "written by hand, fp32": lambda: (loop(clients, images), base(), cpu),
        "FedWCA over FedAvg, CPU": lambda: (*fedwca_and_fedavg(images), cpu),
        "bf16, 1 worker, CPU": lambda: (engine(clients, images, precision="bf16"), base(), cpu),
        "fp32, 2 workers, wall": lambda: (engine(clients, images, workers=2), base(), wall),
    }


def pair(base: Work, work: Work, clock: Clock, first: bool) -> tuple[float, float]:
    """Seconds of what is compared with and of the work, one after the other; ``first``: the former begins."""
    if first:
        theirs = clock(base)
        return theirs, clock(work)
    mine = clock(work)
    return clock(base), mine


def measure(
    name: str, made: Callable[[], tuple[Work, Work, Clock]], clients: int, images: int, pairs: int
) -> dict[str, Any]:
    """Seconds and ratios of one name.

    Args:
        name: of a target, or of what has none.
        made: makes what is measured.
        clients: K; fewer where FedWCA is.
        images: of each.
        pairs: of runs.
    """
    about, (work, base, clock) = provenance("cpu") | {"instructions": instructions()}, made()
    base()
    work()
    before = os.getloadavg()[0]
    measured = [pair(base, work, clock, number % 2 == 0) for number in range(pairs)]
    ratio = statistics.median(mine / theirs for theirs, mine in measured)
    target = TARGETS.get(name)
    return {
        "base_seconds": [round(theirs, 3) for theirs, _ in measured],
        "seconds": [round(mine, 3) for _, mine in measured],
        "ratio": round(ratio, 3),
        **({} if target is None else {"target": target, "met": round(ratio, 3) <= target}),
        "load_average": round(max(before, os.getloadavg()[0]), 1),
        "clients": FEW if "FedWCA" in name else clients,
        "images": images,
        "environment": about,
    }


def share_of_peak(images: int, pairs: int) -> dict[str, Any]:
    """FLOPs a second of the engine's epochs over those of a matrix product in float32, on one core, in turns."""
    about, work = provenance("cpu"), engine(FEW, images)
    with FlopCounterMode(display=False) as counter:
        work()
    matrix = torch.randn(SIDE, SIDE)

    def products() -> None:
        for _ in range(PRODUCTS):
            matrix @ matrix

    products()
    seconds = [pair(products, work, cpu, number % 2 == 0) for number in range(pairs)]
    rates = [(2 * SIDE**3 * PRODUCTS / peak, counter.get_total_flops() / own) for peak, own in seconds]
    peak, own = (statistics.median(side) for side in zip(*rates, strict=True))
    return {
        "mflops_an_image": round(counter.get_total_flops() / (FEW * images) / 1e6, 2),
        "gflops": round(own / 1e9, 1),
        "peak_gflops": round(peak / 1e9, 1),
        "share": round(statistics.median(own / peak for peak, own in rates), 3),
        "load_average": round(os.getloadavg()[0], 1),
        "environment": about,
    }


def instructions() -> list[str]:
    """What the processor has for bfloat16; without any of it the bf16 target cannot be met."""
    try:
        text = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return []
    return [name for name in ("avx512_bf16", "amx_bf16") if name in text]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--out", type=Path, default=OUT)
    names = [*contenders(0, 0), PEAK]
    parser.add_argument("--only", action="append", choices=names, help="one of them; repeat; others stay as they were")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = json.loads(given.out.read_text()) if given.only else {"targets": {}}
    result |= {
        "what": "seconds of a round over those of what it is compared with, medians of pairs; labels are fixed, but in "
        "FedWCA's; the environment is that of the latest",
        "environment": provenance("cpu"),
    }
    found = contenders(given.clients, given.images)
    for name in given.only or names:
        if name == PEAK:
            result[PEAK] = share_of_peak(given.images, given.pairs)
        else:
            result["targets"][name] = measure(name, found[name], given.clients, given.images, given.pairs)
        print(name, result.get(name) or result["targets"][name], flush=True)
        keep(given.out, result)


if __name__ == "__main__":
    main()
