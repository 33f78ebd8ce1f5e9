"""FINCH at scale: seconds, memory and recall of first neighbours, up to 100,000 clients x 500 values.

Two kinds of signatures: synthetic clusters, and first layers of LeNets after one real round on digits-mini, tiled to
the number of clients with small noise. Each case runs in a process of its own (started, not forked), so that its peak
memory is its own. Recall is the share of sampled rows whose neighbour is the exact one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from keep import keep, refuse_rehearsal
from provenance import measured_on
from torch import Tensor

from fedwca.engine.memory import measure_peak_memory
from fedwca.functional import connected_components, first_neighbours
from fedwca.functional.neighbours import EXACT
from fedwca.results.environment import describe_environment

KINDS = ("synthetic", "tiled")
VALUES, SAMPLE, SEED = 500, 1000, 0
CLUSTERS, SPREAD = 1000, 0.3
NOISE = 0.1  # of the mean distance between two real signatures; clients of one domain differ by about that
TRAINED, IMAGES = 24, 40
TARGET = {"clients": 100_000, "seconds": 120, "recall": 0.9}


def synthetic(clients: int) -> Tensor:
    """Vectors of a thousand Gaussian clusters ``[clients, 500]`` float32."""
    generator = torch.Generator().manual_seed(SEED)
    centres = torch.randn(CLUSTERS, VALUES, generator=generator)
    members = torch.randint(0, CLUSTERS, (clients,), generator=generator)
    return centres[members].add_(torch.randn(clients, VALUES, generator=generator), alpha=SPREAD)


def signatures() -> Tensor:
    """First-layer values ``[24, 500]`` (of 1,520) of LeNets after round 0 on digits-mini."""
    from fedwca import Keys, SequentialEngine, init_server, run_round
    from fedwca.config.resolve_config import resolve_plan
    from fedwca.runs.load_data import load
    from fedwca.runs.source_models import source_model
    from fedwca.runs.split_trials import split_trial

    layer = {"clients": TRAINED // 4, "samples": IMAGES, "training": {"epochs": 2}, "baselines": [], "seed": SEED}
    plan = resolve_plan({**layer, "aggregator": "one_hot", "clusterer": "finch", "source_training": {"epochs": 3}})
    config = plan.config
    dataset, source = load(config)
    federation = split_trial(config, dataset, source, 0, 0)
    engine = SequentialEngine(source_model(config, dataset, source, 0).network, federation.clients)
    truth = federation.metrics.domain_labels()
    run_round(0, init_server(engine), plan.methods[-1][0], engine, config.training, Keys(SEED), truth)
    return engine.bank[:, :VALUES].clone()


def tiled(real: Tensor, clients: int) -> Tensor:
    """Real signatures repeated, each copy with Gaussian noise of its own."""
    generator = torch.Generator().manual_seed(SEED)
    mean_distance = torch.pdist(real.double()).mean().item()
    scale = NOISE * mean_distance / VALUES**0.5
    rows = real.repeat(-(-clients // len(real)), 1)[:clients]
    return rows.add_(torch.randn(clients, VALUES, generator=generator), alpha=scale)


def recall(x: Tensor, neighbours: Tensor, sample: int) -> float:
    """Share of sampled rows whose neighbour is as near as the exact nearest (cosine), by float64 matrix products."""
    unit = torch.nn.functional.normalize(x.double(), dim=1)
    centred = unit - unit.mean(0)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(SEED + 1))[:sample]
    hits = 0
    for batch in rows.split(100):
        squares = centred.square().sum(1) - 2 * centred[batch] @ centred.mT
        squares[torch.arange(len(batch)), batch] = torch.inf
        exact = squares.argmin(1)
        nearest = (unit[batch] - unit[exact]).norm(dim=1)
        hits += int(((unit[batch] - unit[neighbours[batch]]).norm(dim=1) <= nearest * (1 + 1e-9)).sum())
    return hits / len(rows)


def case(kind: str, clients: int, backend: str, real: Tensor, sample: int, threads: int) -> dict[str, Any]:
    """One measurement; run it in a new process, because peak memory is that of the process."""
    torch.set_num_threads(threads)
    x = synthetic(clients) if kind == "synthetic" else tiled(real, clients)
    first_neighbours(x[:100], backend=backend)  # libraries are loaded before the clock starts
    memory_before = measure_peak_memory()
    wall, cpu = time.perf_counter(), time.process_time()
    neighbours = first_neighbours(x, backend=backend)
    labels = connected_components(neighbours)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "signatures": kind,
        "clients": clients,
        "values": VALUES,
        "backend": backend,
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "threads": threads,
        "clusters": int(labels.max()) + 1,
        "mb_before": round(memory_before / 1e6),
        "mb_peak": round(measure_peak_memory() / 1e6),
        "recall": recall(x, neighbours, sample),
        "load_average": round(os.getloadavg()[0], 1),
    }


def measure(kinds: list[str], sizes: list[int], sample: int, threads: int) -> Iterator[dict[str, Any]]:
    """All cases, each in its own process."""
    real, spawn = signatures(), multiprocessing.get_context("spawn")
    for kind in kinds:
        for clients in sizes:
            # Up to the limit of exact search both backends are measured, so that the choice can be judged.
            for backend in ("faiss", "hnsw") if clients <= EXACT else ("hnsw",):
                with spawn.Pool(1) as pool:
                    yield pool.apply(case, (kind, clients, backend, real, sample, threads))


def main(arguments: list[str] | None = None) -> None:
    """Cases measured anew replace those in the file; the others stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, EXACT, TARGET["clients"]])
    parser.add_argument("--sample", type=int, default=SAMPLE, help="rows whose recall is checked")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "finch_scale.json")
    options = parser.parse_args(arguments)
    # Some of the usual sizes alone are no rehearsal: the file keeps the others.
    others = set(options.sizes) - set(parser.get_default("sizes"))
    refuse_rehearsal(parser, options, "sample", *(["sizes"] if others else []))
    previous = json.loads(options.out.read_text()) if options.out.exists() else {"cases": []}
    cases = {key(case): case for case in previous["cases"]}
    environment, own = measured_on(describe_environment("cpu"), previous.get("environment"))
    kept = ("seconds", "cpu_seconds", "recall", "load_average", "environment")
    for measurement in measure(options.kinds, options.sizes, options.sample, options.threads):
        print(measurement, flush=True)
        if earlier := cases.get(key(measurement)):  # so that a better number hides no worse one
            measurement["earlier"] = [
                *earlier.get("earlier", []),
                {name: earlier[name] for name in kept if name in earlier},
            ]
        cases[key(measurement)] = measurement | own
        write(options.out, [cases[name] for name in sorted(cases)], environment)


def key(case: dict[str, Any]) -> tuple[str, int, str]:
    """What identifies a case: signatures, clients and backend."""
    return case["signatures"], case["clients"], case["backend"]


def write(file: Path, cases: list[dict[str, Any]], environment: dict[str, Any]) -> None:
    """Write the result file."""
    result = {
        "what": "first neighbours and connected components (FINCH level 0), cosine, float64 differences",
        "target": TARGET,
        "synthetic": {"clusters": CLUSTERS, "spread": SPREAD},
        "tiled": {"trained": TRAINED, "noise": NOISE, "values": f"the first {VALUES} of the first layer's 1,520"},
        "auto": f"exact faiss up to {EXACT} clients, hnsw above",
        "cases": cases,
        "environment": environment,
    }
    keep(file, result)


if __name__ == "__main__":
    main()
