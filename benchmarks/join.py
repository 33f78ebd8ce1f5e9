"""Clients that join after training, measured against the same clients when they took part from the start.

One client per target domain is held back. FedWCA is run without them, then they join, by update and by alignment, with
and without adaptation; and it is run once with everybody. Same source model, same split, same seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from fedwca import Federation, Keys, SequentialEngine, init_server, run_round
from fedwca.config.resolve_config import resolve_plan
from fedwca.config.run_config import RunConfig
from fedwca.core.files import write_atomically
from fedwca.core.network import Network
from fedwca.engine.client_task import Training
from fedwca.export.model_from_run import classify
from fedwca.federated.method import Method
from fedwca.newcomers.choose_cluster import By, first_round
from fedwca.newcomers.join import join
from fedwca.newcomers.load_federation import TrainedFederation
from fedwca.results.environment import describe_environment
from fedwca.runs.load_data import load
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

OUT = Path(__file__).parent / "results" / "join.json"
ADAPT = {"joined": False, "joined and adapted": True}


def played(
    config: RunConfig, method: Method, network: Network, federation: Federation, who: Sequence[int], seed: int
) -> tuple[TrainedFederation, SequentialEngine]:
    """A federation of some of the clients after all rounds."""
    clients = [federation.clients[client] for client in who]
    engine, keys = SequentialEngine(network, clients, "cpu", config.workers), Keys(seed)
    domains = federation.metrics.domain_labels()[list(who)]
    server, labels = init_server(engine), domains
    for number in range(config.rounds):
        server, outcome = run_round(number, server, method, engine, config.training, keys, domains)
        labels = outcome.labels
    return TrainedFederation(method, network, clients, server, labels, config.training, keys), engine


def measure(given: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """One record a held-back client."""
    layer: dict[str, Any] = {
        "dataset": "digits_mini",
        "clients": given.clients,
        "samples": given.samples,
        "rounds": given.rounds,
        "seed": seed,
        "clusterer": "finch",
        "baselines": [],
        "device": "cpu",
    }
    training = Training(epochs=given.epochs, lr=3e-3)
    layer |= {"training": training.model_dump(), "source_training": {"epochs": given.source_epochs, "lr": 0.01}}
    plan = resolve_plan(layer)
    config, (method, _) = plan.config, plan.methods[-1]
    dataset, name = load(config)
    federation, network = split_trial(config, dataset, name, 0, 0), source_model(config, dataset, name, 0).network
    domains, everyone = federation.metrics.domains, range(len(federation))
    held = list(range(given.clients - 1, len(federation), given.clients))

    def accuracy(client: int, trained: Network) -> float:
        return federation.metrics.accuracy(client, classify(trained, federation.clients[client].test))

    found: dict[int, dict[str, Any]] = {k: {"seed": seed, "client": k, "domain": domains[k]} for k in held}
    for k in held:
        found[k]["source model"] = accuracy(k, network)
    together, engine = played(config, method, network, federation, everyone, seed)
    server = together.server
    delivered = engine.classify(method.aggregator.deliver(server.state, len(server.rows)), server.rows)
    own = engine.classify()
    for k in held:
        found[k]["took part"] = federation.metrics.accuracy(k, delivered[k])
        found[k]["took part, own model"] = federation.metrics.accuracy(k, own[k])
        same = [domains[other] for other in everyone if together.labels[other] == together.labels[k] and other != k]
        found[k]["took part, own domain in cluster"] = same.count(domains[k]) / max(1, len(same))
    there = [k for k in everyone if k not in held]
    standing, _ = played(config, method, network, federation, there, seed)
    standing = replace(standing, first=first_round(standing))
    for k in held:
        for by in get_args(By):
            for label, adapts in ADAPT.items():
                joined = join(standing, federation.clients[k].train, by, config.training.epochs if adapts else 0)
                found[k][f"{label}, {by}"] = accuracy(k, joined.network)
            members = [domains[there[m]] for m in (standing.labels == joined.choice.cluster).nonzero()[:, 0].tolist()]
            found[k][f"own domain in cluster, {by}"] = members.count(domains[k]) / max(1, len(members))
    return list(found.values())


COLUMNS = (
    "source model",
    *(f"{label}, {by}" for label in ADAPT for by in get_args(By)),
    "took part",
    "took part, own model",
)


def summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over held-back clients for each seed, then mean and std (ddof 1) over seeds; differences are paired."""
    seeds = sorted({record["seed"] for record in records})

    def over(value: Callable[[dict[str, Any]], float]) -> dict[str, Any]:
        means = [statistics.fmean(value(r) for r in records if r["seed"] == seed) for seed in seeds]
        return {
            "mean": statistics.fmean(means),
            "std": statistics.stdev(means) if len(means) > 1 else None,
            "n": len(means),
            "seeds": means,
        }

    pairs = {column: "took part, own model" if "adapted" in column else "took part" for column in COLUMNS[1:5]}
    return {
        "accuracy": {column: over(lambda r, c=column: r[c]) for column in COLUMNS},  # type: ignore[misc]
        "minus having taken part": {
            column: {"to": other, **over(lambda r, c=column, o=other: r[c] - r[o])}  # type: ignore[misc]
            for column, other in pairs.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("seeds", 3),
        ("first-seed", 200),
        ("clients", 4),
        ("samples", 300),
        ("rounds", 10),
        ("epochs", 5),
        ("source-epochs", 30),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    started, records = time.perf_counter(), []
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    config = {key: value for key, value in vars(given).items() if key != "out"}
    for seed in seeds:
        records += measure(given, seed)
        result = {
            "what": "test accuracy in percent of clients held back from FedWCA's training (one per target domain of "
            "digits-mini, source handwritten), by how they got their model",
            "config": {**config, "lr": 3e-3, "held_back": "the last client of each domain"},
            "summary": summary(records),
            "clients": records,
            "complete": seed == seeds[-1],
            "seconds": time.perf_counter() - started,
            "environment": describe_environment("cpu"),
        }
        text = json.dumps(result, indent=2) + "\n"
        write_atomically(given.out, lambda file, text=text: file.write_text(text))  # type: ignore[misc]
        means = {column: round(entry["mean"], 1) for column, entry in result["summary"]["accuracy"].items()}  # type: ignore[index]
        print(f"seed {seed}, {result['seconds']:.0f} s: {means}", flush=True)


if __name__ == "__main__":
    main()
