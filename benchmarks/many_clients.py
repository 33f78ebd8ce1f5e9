"""Thousands of clients on one device: what a round costs when the same few of more and more clients take part.

After round 0, 100 clients of 100, 500 or 2,000 train in each round, so that what grows with the federation is the cost
of the absent clients. Each case runs in a process of its own, so that its peak memory can be measured.
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
from keep import refuse_rehearsal
from provenance import provenance

CLIENTS, PRESENT, IMAGES, ROUNDS, DOMAINS = (100, 500, 2000), 100, 10, 4, 4
MODEL = {"lenet": {"bottleneck": 16}}
METHODS = ("fedavg",)


def run(clients: int, method: str) -> dict[str, Any]:
    """Run one case and return its median seconds of a round by phase and its peak memory.

    Seconds are of rounds after round 0. Memory is in MB, of the whole process and of the time before the rounds.
    """
    import torch

    from fedwca.config.build_component import architecture
    from fedwca.config.resolve_config import resolve_plan
    from fedwca.data.dataset import Domain, FederatedDataset
    from fedwca.engine.memory import measure_peak_memory
    from fedwca.engine.parameter_layout import Layout
    from fedwca.results.checkpoints import Checkpoints
    from fedwca.results.retention_policy import RetentionPolicy
    from fedwca.runs.resuming.checkpointer import Checkpointer
    from fedwca.runs.run_trials_and_methods import run_bench
    from fedwca.runs.split_trials import TrialSplits

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    names = ["home", *(f"domain {d}" for d in range(DOMAINS))]

    def domain(index: int, images: int) -> Domain:
        labels = generator.integers(0, 10, images)
        pixels = generator.integers(0, 60, (images, 32, 32, 3), np.uint8) + np.uint8(60 * (index % 3))
        pixels[np.arange(images), 3 * labels, 3 * labels] = 255
        return Domain(names[index], pixels, labels)

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
    memory_before_rounds = measure_peak_memory()
    records, end_times = [], []
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = Checkpointer(Checkpoints(Path(folder), "many", RetentionPolicy.parse("last")))
        for record in run_bench(
            plan.config, plan.methods, TrialSplits(plan.config, dataset, "home"), checkpointer=checkpointer
        ):
            end_times.append((time.perf_counter(), time.process_time()))
            records.append(record)
    later_seconds = [r["seconds"] for r in records if r["round"] > 0]
    width = Layout.of(architecture(plan.config).build(10)).width
    return {
        "clients": clients,
        "present": PRESENT,
        "method": method,
        "seconds": {
            key: round(statistics.median(s[key] for s in later_seconds), 3) for key in ("round", "evaluate", "record")
        },
        "wall_seconds_a_round": spent(end_times, 0),
        "cpu_seconds_a_round": spent(end_times, 1),
        "bank_mb": round(4 * clients * width / 1e6),
        "peak_mb": round(measure_peak_memory() / 1e6),
        "peak_mb_before": round(memory_before_rounds / 1e6),
    }


def spent(end_times: list[tuple[float, float]], clock: int) -> float:
    """Median seconds of a round after round 0, checkpoint included.

    Args:
        end_times: of each record, (wall clock, CPU clock) in seconds.
        clock: 0: wall clock; 1: CPU clock.
    """
    return round(statistics.median(end[clock] - start[clock] for start, end in pairwise(end_times[1:])), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "many_clients.json")
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--one", action="store_true", help="one case in this process, to stdout")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(options.clients[0], options.methods[0])))
        return
    refuse_rehearsal(parser, options, "clients", "methods")
    cases = []
    for method in options.methods:
        for clients in options.clients:
            load = os.getloadavg()[0]
            command = [sys.executable, __file__, "--one", "--clients", str(clients), "--methods", method]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            cases.append({**json.loads(output), "load_average": round(load, 1)})
            print(cases[-1], flush=True)
    setting = {"images": IMAGES, "rounds": ROUNDS, "model": MODEL, "workers": 1, "seed": 0}
    result = {"setting": setting, "cases": cases, "environment": provenance("cpu")}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
