"""Training steps of the stacked engine on a CPU by kernels, LeNet and ResNet-18: seconds, and whether numbers agree.

CPU seconds of one thread; candidates take turns. gpu.py measures the same on a GPU. The committed results are older and
hold two more candidates, products and compile, which were removed because of these results.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from keep import keep, refuse_rehearsal
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
"""Model, clients trained at a time, images per client and step, precision."""
CANDIDATES: tuple[Kernels, ...] = ("eager", "channels-last")
STEPS = 7


def measure(
    model: str, clients: int, batch: int, precision: Precision, candidates: tuple[Kernels, ...]
) -> dict[str, Any]:
    """Measure the candidates for one model in one precision."""
    architecture = models.build(model)
    generator = torch.Generator().manual_seed(0)
    shape = (clients, batch, 3, architecture.stored_side, architecture.stored_side)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    results = benchmark_kernels(architecture.build(10, seed=0), images, precision, candidates, STEPS, time.process_time)
    load = round(os.getloadavg()[0], 1)
    settings = {"model": model, "clients": clients, "batch": batch, "precision": precision, "load_average": load}
    return {**settings, "best": pick_kernels(results), "candidates": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "kernels.json")
    parser.add_argument("--candidates", nargs="+", default=CANDIDATES, choices=CANDIDATES)
    options = parser.parse_args()
    refuse_rehearsal(parser, options, "candidates")
    torch.set_num_threads(1)
    cases = []
    for case in CASES:
        cases.append(measure(*case, tuple(options.candidates)))
        print(cases[-1], flush=True)
    description = "training steps, forward and backward, of the stacked engine: CPU seconds of one thread, median"
    keep(options.out, {"what": description, "steps": STEPS, "cases": cases, "environment": provenance("cpu")})


if __name__ == "__main__":
    main()
