"""Thousands of clients on one device: what a round costs when the same few of more and more clients take part.

One hundred clients train in each round after the first, of 100, 500 and 2,000. What grows with the federation is what
absent clients cost. Each size runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

CLIENTS, PRESENT, IMAGES, ROUNDS, DOMAINS = (100, 500, 2000), 100, 10, 4, 4
MODEL = {"lenet": {"bottleneck": 16}}
METHODS = ("fedavg",)


def run(clients: int, method: str) -> dict[str, Any]:
    """Seconds of a later round by phase (medians), and memory in MB: the whole process, and before the rounds."""
    import torch

    from fedwca.config.resolve_config import resolve_plan
    from fedwca.data.dataset import Domain, FederatedDataset
    from fedwca.engine.memory import measure_peak_memory
    from fedwca.engine.parameter_layout import Layout
    from fedwca.results.checkpoints import Checkpoints, RetentionPolicy
    from fedwca.runs.checkpointer import Checkpointer
    from fedwca.runs.load_data import architecture
    from fedwca.runs.run_trials_and_methods import run_bench

    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    names = ["home", *(f"domain {d}" for d in range(DOMAINS))]

    def domain(number: int, images: int) -> Domain:
        labels = draw.integers(0, 10, images)
        pixels = draw.integers(0, 60, (images, 32, 32, 3), np.uint8) + np.uint8(60 * (number % 3))
        pixels[np.arange(images), 3 * labels, 3 * labels] = 255
        return Domain(names[number], pixels, labels)

    sizes = [200, *[clients // DOMAINS * IMAGES] * DOMAINS]
    dataset = FederatedDataset("many", tuple("0123456789"), {names[d]: domain(d, n) for d, n in enumerate(sizes)})
    plan = resolve_plan(
        {
            **{"clients": clients // DOMAINS, "rounds": ROUNDS, "participation": PRESENT / clients, "device": "cpu"},
            **{"aggregator": method, "baselines": [], "components": {"model": MODEL}, "workers": 1},
            **{"training": {"epochs": 1, "batch_size": 16, "lr": 0.003}, "source_training": {"epochs": 1}},
            **({"clusterer": "true"} if method == "wca" else {}),
        }
    )
    before = measure_peak_memory()
    records, ends = [], []
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = Checkpointer(Checkpoints(Path(folder), "many", RetentionPolicy.parse("last")))
        for record in run_bench(plan.config, plan.methods, dataset, "home", checkpointer=checkpointer):
            ends.append((time.perf_counter(), time.process_time()))
            records.append(record)
    later = [r["seconds"] for r in records if r["round"] > 0]
    width = Layout.of(architecture(plan.config).build(10)).width
    return {
        "clients": clients,
        "present": PRESENT,
        "method": method,
        "seconds": {key: round(statistics.median(s[key] for s in later), 3) for key in ("round", "evaluate", "record")},
        "wall_seconds_a_round": spent(ends, 0),
        "cpu_seconds_a_round": spent(ends, 1),
        "bank_mb": round(4 * clients * width / 1e6),
        "peak_mb": round(measure_peak_memory() / 1e6),
        "peak_mb_before": round(before / 1e6),
    }


def spent(ends: list[tuple[float, float]], clock: int) -> float:
    """Seconds between the ends of later rounds, checkpoints included: the median."""
    return round(statistics.median(b[clock] - a[clock] for a, b in pairwise(ends[1:])), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "many_clients.json")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--one", action="store_true", help="one case in this process, to stdout")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(run(chosen.clients[0], chosen.methods[0])))
        return
    found = []
    for method in chosen.methods:
        for clients in chosen.clients:
            load = os.getloadavg()[0]
            command = [sys.executable, __file__, "--one", "--clients", str(clients), "--methods", method]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.append({**json.loads(said), "load_average": round(load, 1)})
            print(found[-1], flush=True)
    about = {"images": IMAGES, "rounds": ROUNDS, "model": MODEL, "workers": 1, "seed": 0}
    values = {"setting": about, "cases": found, "environment": provenance("cpu")}
    chosen.out.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
