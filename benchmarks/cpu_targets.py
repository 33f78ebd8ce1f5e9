"""Where rounds are on a CPU against their targets, and what share of a core's peak they reach.

    python benchmarks/cpu_targets.py

Targets: one worker takes at most 0.55 of the CPU seconds of the plain loop in float32 and 0.5 in bfloat16; two
workers take at most half its wall time; a FedWCA round takes at most 1.30 FedAvg rounds. The plain loop runs on one
thread, on images that are floats before it starts. A loop that is written by hand with the engine's kernels is measured
too: the difference from it is the cost of the library. Runs alternate, and so does the side that starts; medians of the
ratios within pairs are compared. Wall time says little on a machine with other work, so the load average is recorded.
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
from keep import keep, refuse_rehearsal
from provenance import provenance
from torch.utils.flop_counter import FlopCounterMode

Work = Callable[[], None]
Clock = Callable[[Work], float]
CLIENTS, IMAGES, PAIRS = 8, 640, 7
FEW, CLUSTERS, EPOCHS, BATCH = 4, 4, 5, 64
"""Size of a FedWCA round; its cost in FedAvg rounds does not depend on the number of clients."""
SIDE, PRODUCTS = 1024, 20
"""Side of the square matrices whose product measures a core's peak, and products per measurement."""
TARGETS = {
    "fp32, 1 worker, CPU": 0.55,
    "bf16, 1 worker, CPU": 0.5,
    "fp32, 2 workers, wall": 0.5,
    "FedWCA over FedAvg, CPU": 1.3,
}
PEAK = "share of the peak"
OUT = Path(__file__).parent / "results" / "cpu_targets.json"


def fedwca_and_fedavg(images: int) -> tuple[Work, Work]:
    """A FedWCA round and a FedAvg round of the same clients; no image is mixed, so both train on as many images."""
    settings = [Setting(name, FEW, CLUSTERS, EPOCHS, images, BATCH) for name in ("wca", "fedavg")]
    fedwca, fedavg = (lambda setting=setting: setting.run(1) and None for setting in settings)
    return fedwca, fedavg


def contenders(clients: int, images: int) -> dict[str, Callable[[], tuple[Work, Work, Clock]]]:
    """By name, a function that prepares a measurement: the work, the work it is compared with, and the clock."""
    base = lambda: plain(clients, images)  # noqa: E731
    return {
        "fp32, 1 worker, CPU": lambda: (engine(clients, images), base(), cpu),
        "written by hand, fp32": lambda: (loop(clients, images), base(), cpu),
        "FedWCA over FedAvg, CPU": lambda: (*fedwca_and_fedavg(images), cpu),
        "bf16, 1 worker, CPU": lambda: (engine(clients, images, precision="bf16"), base(), cpu),
        "fp32, 2 workers, wall": lambda: (engine(clients, images, workers=2), base(), wall),
    }


def pair(base: Work, work: Work, clock: Clock, base_first: bool) -> tuple[float, float]:
    """Seconds of (base, work), run one after the other; ``base_first`` says which runs first."""
    if base_first:
        base_seconds = clock(base)
        return base_seconds, clock(work)
    work_seconds = clock(work)
    return clock(base), work_seconds


def measure(
    name: str, prepare: Callable[[], tuple[Work, Work, Clock]], clients: int, images: int, pairs: int
) -> dict[str, Any]:
    """Seconds of both sides of a comparison, and the median of their ratios.

    Args:
        name: key of `contenders`; not every one has a target.
        prepare: makes the work, its base and the clock.
        clients: number of clients K; written down as `FEW` for FedWCA, which always has that many.
        images: training images per client.
        pairs: pairs of runs.
    """
    environment, (work, base, clock) = provenance("cpu") | {"instructions": instructions()}, prepare()
    base()
    work()
    load_before = os.getloadavg()[0]
    measured = [pair(base, work, clock, number % 2 == 0) for number in range(pairs)]
    ratio = statistics.median(work_seconds / base_seconds for base_seconds, work_seconds in measured)
    target = TARGETS.get(name)
    return {
        "base_seconds": [round(base_seconds, 3) for base_seconds, _ in measured],
        "seconds": [round(work_seconds, 3) for _, work_seconds in measured],
        "ratio": round(ratio, 3),
        **({} if target is None else {"target": target, "met": round(ratio, 3) <= target}),
        "load_average": round(max(load_before, os.getloadavg()[0]), 1),
        "clients": FEW if "FedWCA" in name else clients,
        "images": images,
        "environment": environment,
    }


def share_of_peak(images: int, pairs: int) -> dict[str, Any]:
    """FLOPs per second of the engine's epochs over those of a float32 matrix product, on one core, in turns."""
    environment, work = provenance("cpu"), engine(FEW, images)
    with FlopCounterMode(display=False) as counter:
        work()
    matrix = torch.randn(SIDE, SIDE)

    def products() -> None:
        for _ in range(PRODUCTS):
            matrix @ matrix

    products()
    seconds = [pair(products, work, cpu, number % 2 == 0) for number in range(pairs)]
    rates = [
        (2 * SIDE**3 * PRODUCTS / product_seconds, counter.get_total_flops() / work_seconds)
        for product_seconds, work_seconds in seconds
    ]
    peak_rate, engine_rate = (statistics.median(side) for side in zip(*rates, strict=True))
    return {
        "mflops_an_image": round(counter.get_total_flops() / (FEW * images) / 1e6, 2),
        "gflops": round(engine_rate / 1e9, 1),
        "peak_gflops": round(peak_rate / 1e9, 1),
        "share": round(statistics.median(rate / peak for peak, rate in rates), 3),
        "load_average": round(os.getloadavg()[0], 1),
        "environment": environment,
    }


def instructions() -> list[str]:
    """The processor's bfloat16 instruction sets; without any of them the bf16 target cannot be met."""
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return []
    return [name for name in ("avx512_bf16", "amx_bf16") if name in words]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--out", type=Path, default=OUT)
    names = [*contenders(0, 0), PEAK]
    parser.add_argument("--only", action="append", choices=names, help="one of them; repeat; others stay as they were")
    options = parser.parse_args(arguments)
    refuse_rehearsal(parser, options, "clients", "images", "pairs")
    torch.set_num_threads(1)
    result = json.loads(options.out.read_text()) if options.only and options.out.exists() else {"targets": {}}
    result |= {
        "what": "seconds of a round over those of what it is compared with, medians of pairs; labels are fixed, but in "
        "FedWCA's; the environment is that of the latest",
        "environment": provenance("cpu"),
    }
    measurements = contenders(options.clients, options.images)
    for name in options.only or names:
        if name == PEAK:
            result[PEAK] = share_of_peak(options.images, options.pairs)
        else:
            result["targets"][name] = measure(name, measurements[name], options.clients, options.images, options.pairs)
        print(name, result.get(name) or result["targets"][name], flush=True)
        keep(options.out, result)


if __name__ == "__main__":
    main()
