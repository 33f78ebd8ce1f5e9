"""Training steps of the stacked engine on a CPU by kernels, LeNet and ResNet-18: seconds, and whether numbers agree.

One thread, CPU seconds; candidates take turns. On a GPU the same is a piece of gpu.py. The committed results are older
and have two more, which were dropped for them: products and compile.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from keep import keep
from provenance import provenance

from fedwca.engine.precision import Precision
from fedwca.engine.stacked.tuning.benchmark import benchmark_kernels, pick_kernels
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.models import models

CASES: tuple[tuple[str, int, int, Precision], ...] = (
    ("lenet", 4, 64, "fp32"),
    ("lenet", 4, 64, "bf16"),
    ("resnet18:weights=none,side=64", 3, 16, "fp32"),
)
"""Model, clients at a time, images of each in a step, precision."""
CANDIDATES: tuple[Kernels, ...] = ("eager", "channels-last")
STEPS = 7


def measure(
    name: str, clients: int, batch: int, precision: Precision, candidates: tuple[Kernels, ...]
) -> dict[str, Any]:
    """One model in one precision."""
    architecture = models.build(name)
    draw = torch.Generator().manual_seed(0)
    size = (clients, batch, 3, architecture.stored, architecture.stored)
    images = torch.randint(0, 256, size, dtype=torch.uint8, generator=draw)
    tried = benchmark_kernels(architecture.build(10, seed=0), images, precision, candidates, STEPS, time.process_time)
    load = round(os.getloadavg()[0], 1)
    about = {"model": name, "clients": clients, "batch": batch, "precision": precision, "load_average": load}
    return {**about, "best": pick_kernels(tried), "candidates": tried}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "kernels.json")
    parser.add_argument("--candidates", nargs="+", default=CANDIDATES, choices=CANDIDATES)
    given = parser.parse_args()
    torch.set_num_threads(1)
    cases = []
    for case in CASES:
        cases.append(measure(*case, tuple(given.candidates)))
        print(cases[-1], flush=True)
    what = "training steps, forward and backward, of the stacked engine: CPU seconds of one thread, median"
    keep(given.out, {"what": what, "steps": STEPS, "cases": cases, "environment": provenance("cpu")})


if __name__ == "__main__":
    main()
