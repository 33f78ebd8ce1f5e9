"""LeNets batched by hand over clients, beside the same by torch.func.vmap: what does generality cost?

By hand: grouped convolutions over all clients' channels and `baddbmm` for the bottleneck, which is how the engine runs
LeNets, on a CPU in channels-last order; other models go through vmap. Measured in CPU seconds on one thread, in turns;
on a GPU it is a piece of gpu.py.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from keep import keep
from provenance import provenance

from fedwca.engine.stacked.tuning.benchmark import Candidate
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.models.lenet import LeNet

CLASSES, STEPS = 10, 15
WAYS: dict[str, tuple[Kernels, bool]] = {
    "by hand, channels-last": ("channels-last", True),
    "by hand": ("eager", True),
    "vmap, channels-last": ("channels-last", False),
    "vmap": ("eager", False),
}
"""Kernels of each way, and whether it is batched by hand."""


def beside(
    clients: int, batch: int, device: str = "cpu", steps: int = STEPS, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Median seconds of a training step by way, and the ratios of the first way to the last.

    ``apart`` is the largest distance of a gradient from that of the last way, divided by the norm of the latter.
    """
    network = LeNet().build(CLASSES, seed=0).to(device)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (clients, batch, 3, 32, 32), dtype=torch.uint8, generator=generator).to(device)
    x = network.prepare(images.flatten(0, 1)).unflatten(0, images.shape[:2])
    candidates = {
        way: Candidate(network, x, "fp32", kernels, by_hand=batched) for way, (kernels, batched) in WAYS.items()
    }
    gradients = [candidate.timed(clock)[1] for candidate in candidates.values()]
    largest_distance = max(float((gradient - gradients[-1]).norm() / gradients[-1].norm()) for gradient in gradients)
    times: dict[str, list[float]] = {way: [] for way in candidates}
    for turn in range(steps):
        for way in list(candidates) if turn % 2 == 0 else reversed(list(candidates)):
            times[way].append(candidates[way].timed(clock)[0])
    medians = {way: round(statistics.median(values), 6) for way, values in times.items()}
    first, *_, last = times.values()
    ratios = [value / base for value, base in zip(first, last, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    summary = {"median": round(statistics.median(ratios), 3), "quarters": [round(low, 3), round(high, 3)]}
    sizes = {"clients": clients, "batch": batch, "steps": steps}
    return {**sizes, "seconds": medians, "first_over_last": summary, "apart": largest_distance}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "by_hand.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [beside(clients, 64, clock=time.process_time) for clients in (4, 32)]
    title = "training steps of LeNets, forward and backward, by hand and by vmap: CPU seconds of one thread, medians"
    keep(options.out, {"what": title, "cases": cases, "environment": provenance("cpu")})
    print(cases)


if __name__ == "__main__":
    main()
