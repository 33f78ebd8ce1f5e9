"""LeNets batched by hand over clients, beside the same by torch.func.vmap: what does generality cost?

By hand: grouped convolutions over all clients' channels and `baddbmm` for the bottleneck, which is how the engine runs
LeNets, on a CPU in channels-last order; other models go through vmap. One thread of a CPU, CPU seconds, in turn; on a
GPU it is a piece of gpu.py.
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
"""Kernels, and whether by hand."""


def beside(
    clients: int, batch: int, device: str = "cpu", steps: int = STEPS, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Seconds of a training step by way, medians; the first over the last; and how far gradients are apart at most."""
    network = LeNet().build(CLASSES, seed=0).to(device)
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (clients, batch, 3, 32, 32), dtype=torch.uint8, generator=draw).to(device)
    x = network.prepare(images.flatten(0, 1)).unflatten(0, images.shape[:2])
    entries = {way: Candidate(network, x, "fp32", kernels, by_hand=own) for way, (kernels, own) in WAYS.items()}
    gradients = [entry.timed(clock)[1] for entry in entries.values()]
    apart = max(float((own - gradients[-1]).norm() / gradients[-1].norm()) for own in gradients)
    times: dict[str, list[float]] = {way: [] for way in entries}
    for turn in range(steps):
        for way in list(entries) if turn % 2 == 0 else reversed(list(entries)):
            times[way].append(entries[way].timed(clock)[0])
    found = {way: round(statistics.median(own), 6) for way, own in times.items()}
    first, *_, last = times.values()
    ratios = [one / other for one, other in zip(first, last, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    over = {"median": round(statistics.median(ratios), 3), "quarters": [round(low, 3), round(high, 3)]}
    about = {"clients": clients, "batch": batch, "steps": steps}
    return {**about, "seconds": found, "first_over_last": over, "apart": apart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "by_hand.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    cases = [beside(clients, 64, clock=time.process_time) for clients in (4, 32)]
    what = "training steps of LeNets, forward and backward, by hand and by vmap: CPU seconds of one thread, medians"
    keep(given.out, {"what": what, "cases": cases, "environment": provenance("cpu")})
    print(cases)


if __name__ == "__main__":
    main()
