"""Clients that join after training, measured against the same clients when they took part from the start.

One client per target domain is held back. FedWCA is run without these clients, then they join, by update and by
alignment, each with and without adaptation. FedWCA is also run once with all clients. The source model, the split and
the seeds are the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from keep import refuse_rehearsal

from fedwca import Federation, Keys, SequentialEngine, init_server, run_round
from fedwca.config.resolve_config import resolve_plan
from fedwca.config.run_config import RunConfig
from fedwca.core.files import write_atomically
from fedwca.core.network import Network
from fedwca.engine.client_task import Training
from fedwca.export.delivered_accuracy import classify
from fedwca.federated.method import Method
from fedwca.newcomers.choose_cluster import By
from fedwca.newcomers.join import join
from fedwca.newcomers.load_federation import TrainedFederation
from fedwca.results.environment import describe_environment
from fedwca.runs.load_data import load
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

OUT = Path(__file__).parent / "results" / "join.json"
ADAPT = {"joined": False, "joined and adapted": True}


def played(
    config: RunConfig, method: Method, network: Network, federation: Federation, client_ids: Sequence[int], seed: int
) -> tuple[TrainedFederation, SequentialEngine]:
    """Train some of the clients for all rounds; returns the trained federation and its engine."""
    clients = [federation.clients[client] for client in client_ids]
    engine, keys = SequentialEngine(network, clients, "cpu", config.workers), Keys(seed)
    domains = federation.metrics.domain_labels()[list(client_ids)]
    server, labels = init_server(engine), domains
    for round_number in range(config.rounds):
        server, outcome = run_round(round_number, server, method, engine, config.training, keys, domains)
        labels = outcome.labels
    return TrainedFederation(method, network, clients, server, labels, config.training, keys), engine


def measure(options: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """Run FedWCA with and without the held-back clients; one record of accuracies in percent per held-back client."""
    layer: dict[str, Any] = {
        "dataset": "digits_mini",
        "clients": options.clients,
        "samples": options.samples,
        "rounds": options.rounds,
        "seed": seed,
        "clusterer": "finch",
        "baselines": [],
        "device": "cpu",
    }
    training = Training(epochs=options.epochs, lr=3e-3)
    layer |= {"training": training.model_dump(), "source_training": {"epochs": options.source_epochs, "lr": 0.01}}
    plan = resolve_plan(layer)
    config, (method, _) = plan.config, plan.methods[-1]
    dataset, source = load(config)
    federation, network = split_trial(config, dataset, source, 0, 0), source_model(config, dataset, source, 0).network
    domains, all_clients = federation.metrics.domains, range(len(federation))
    held_out = list(range(options.clients - 1, len(federation), options.clients))

    def accuracy(client: int, model: Network) -> float:
        return federation.metrics.accuracy(client, classify(model, federation.clients[client].test))

    records: dict[int, dict[str, Any]] = {k: {"seed": seed, "client": k, "domain": domains[k]} for k in held_out}
    for k in held_out:
        records[k]["source model"] = accuracy(k, network)
    with_all, engine = played(config, method, network, federation, all_clients, seed)
    server = with_all.server
    cluster_predictions = engine.classify(method.aggregator.deliver(server.state, len(server.rows)), server.rows)
    client_predictions = engine.classify()
    for k in held_out:
        records[k]["took part"] = federation.metrics.accuracy(k, cluster_predictions[k])
        records[k]["took part, own model"] = federation.metrics.accuracy(k, client_predictions[k])
        cluster_domains = [
            domains[other] for other in all_clients if with_all.labels[other] == with_all.labels[k] and other != k
        ]
        records[k]["took part, own domain in cluster"] = cluster_domains.count(domains[k]) / max(
            1, len(cluster_domains)
        )
    remaining = [k for k in all_clients if k not in held_out]
    without_held_out, _ = played(config, method, network, federation, remaining, seed)
    for k in held_out:
        for by in get_args(By):
            for label, adapts in ADAPT.items():
                joined = join(
                    without_held_out, federation.clients[k].train, by, config.training.epochs if adapts else 0
                )
                records[k][f"{label}, {by}"] = accuracy(k, joined.network)
            member_domains = [
                domains[remaining[m]]
                for m in (without_held_out.labels == joined.choice.cluster).nonzero()[:, 0].tolist()
            ]
            records[k][f"own domain in cluster, {by}"] = member_domains.count(domains[k]) / max(1, len(member_domains))
    return list(records.values())


COLUMNS = (
    "source model",
    *(f"{label}, {by}" for label in ADAPT for by in get_args(By)),
    "took part",
    "took part, own model",
)


def summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over held-back clients by seed, then their mean and standard deviation (ddof 1) over seeds.

    Differences are paired by client.
    """
    seeds = sorted({record["seed"] for record in records})

    def mean_over_seeds(value: Callable[[dict[str, Any]], float]) -> dict[str, Any]:
        means = [statistics.fmean(value(r) for r in records if r["seed"] == seed) for seed in seeds]
        return {
            "mean": statistics.fmean(means),
            "std": statistics.stdev(means) if len(means) > 1 else None,
            "n": len(means),
            "seeds": means,
        }

    references = {column: "took part, own model" if "adapted" in column else "took part" for column in COLUMNS[1:5]}
    return {
        "accuracy": {column: mean_over_seeds(lambda r, c=column: r[c]) for column in COLUMNS},  # type: ignore[misc]
        "minus having taken part": {
            column: {"to": reference, **mean_over_seeds(lambda r, c=column, ref=reference: r[c] - r[ref])}  # type: ignore[misc]
            for column, reference in references.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = (
        ("seeds", 3),
        ("first-seed", 200),
        ("clients", 4),
        ("samples", 300),
        ("rounds", 10),
        ("epochs", 5),
        ("source-epochs", 30),
    )
    for name, default in sizes:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    refuse_rehearsal(parser, options, *(name.replace("-", "_") for name, _ in sizes))
    started, records = time.perf_counter(), []
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    config = {key: value for key, value in vars(options).items() if key != "out"}
    for seed in seeds:
        records += measure(options, seed)
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
        write_atomically(options.out, lambda file, text=text: file.write_text(text))  # type: ignore[misc]
        means = {column: round(entry["mean"], 1) for column, entry in result["summary"]["accuracy"].items()}  # type: ignore[index]
        print(f"seed {seed}, {result['seconds']:.0f} s: {means}", flush=True)


if __name__ == "__main__":
    main()
