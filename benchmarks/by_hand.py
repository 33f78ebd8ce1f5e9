"""LeNets batched by hand over clients, beside the same by torch.func.vmap: what does generality cost?

By hand: grouped convolutions over all clients' channels and `baddbmm` for the bottleneck, which is how the engine runs
LeNets; other models go through vmap. One thread of a CPU, CPU seconds, in turn; on a GPU it is a piece of gpu.py.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from digits import keep
from provenance import provenance

from fedwca.engine.stacked.contest import Entry
from fedwca.models.lenet import LeNet

CLASSES, STEPS = 10, 15


def beside(
    clients: int, batch: int, device: str = "cpu", steps: int = STEPS, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Seconds of a training step by hand and by vmap, medians, and how far the gradients are apart."""
    network = LeNet().build(CLASSES, seed=0).to(device)
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (clients, batch, 3, 32, 32), dtype=torch.uint8, generator=draw).to(device)
    x = network.prepare(images.flatten(0, 1)).unflatten(0, images.shape[:2])
    entries = {"by_hand": Entry(network, x, "fp32", "eager"), "vmap": Entry(network, x, "fp32", "eager", by_hand=False)}
    gradients = {name: entry.timed(clock)[1] for name, entry in entries.items()}
    apart = float((gradients["vmap"] - gradients["by_hand"]).norm() / gradients["by_hand"].norm())
    times: dict[str, list[float]] = {name: [] for name in entries}
    for turn in range(steps):
        for name in list(entries) if turn % 2 == 0 else reversed(list(entries)):
            times[name].append(entries[name].timed(clock)[0])
    found = {name: round(statistics.median(own), 6) for name, own in times.items()}
    pairs = [one / other for one, other in zip(times["vmap"], times["by_hand"], strict=True)]
    quarters = statistics.quantiles(pairs, n=4)
    ratio = {"median": round(statistics.median(pairs), 3), "quarters": [round(quarters[0], 3), round(quarters[2], 3)]}
    about = {"clients": clients, "batch": batch, "steps": steps}
    return {**about, "seconds": found, "vmap_over_by_hand": ratio, "apart": apart}


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
