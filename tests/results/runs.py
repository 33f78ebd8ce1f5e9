"""Made-up run folders of any size: random numbers with a fixed seed, in the format that a benchmark writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedwca.results.run_schemas import SCHEMA
from fedwca.results.table_rows import summarise, table_rows

CLASSES = ("zero", "one", "two", "three")
CONFUSION = [[0, 0, 6], [0, 1, 2], [1, 1, 4], [2, 0, 1], [2, 2, 3]]
"""Triples of true class, predicted class and number of test images; no image is of the last class."""


def write_run(
    folder: Path,
    methods: int = 3,
    clients: int = 2,
    domains: int = 3,
    trials: int = 2,
    rounds: int = 4,
    clusters: int = 3,
    complete: bool = True,
    **settings: Any,
) -> Path:
    """Write a run folder and return it.

    Args:
        folder: a folder that does not exist yet.
        methods: how many; the last is ``wca``, and from two on the first is ``source_only``, which has no rounds.
        clients: how many in each domain.
        domains: how many.
        trials: how many.
        rounds: how many per trial.
        clusters: columns of the weights of ``wca`` from round 1 on; all other rounds have one.
        complete: what ``summary.json`` says of it.
        settings: further fields of the configuration, or other values of those that it has.
    """
    names = ["source_only", *(f"method_{index}" for index in range(1, methods - 1)), "wca"][-methods:]
    labels = {name: {"source_only": "Source Only", "wca": "FedWCA"}.get(name, name.replace("_", " ")) for name in names}
    targets = [f"target{index}" for index in range(domains)]
    random, count = np.random.default_rng(0), clients * domains
    records = []
    for trial in range(trials):
        for index, name in enumerate(names):
            level = 40 + 20 * random.random(count)
            tag = {"schema": SCHEMA, "method": name, "source_model": 0, "trial": trial}
            counts = {"confusion": CONFUSION, "calibration_error": 12.5}
            records.append({**tag, "round": -1, "accuracy": level.tolist(), "source_accuracy": 93.0, **counts})
            for number in range(rounds if name != "source_only" else 0):
                level = np.clip(level + random.normal(2 + index / methods, 2, count), 0, 100)
                width = clusters if name == "wca" and number else 1
                records.append({**tag, "round": number, **counts, **record(random, level, clients, width, clusters)})
    folder.mkdir(parents=True)
    training = {"epochs": 5, "lr": 0.003}
    config = {"dataset": "made_up", "source": "home", "clients": clients, "rounds": rounds, "seed": 0}
    config |= {"training": training, "trials": trials, "source_models": 1, **settings}
    method_entries = {
        name: {"label": label, "rounds": rounds if name != "source_only" else 0, "components": []}
        for name, label in labels.items()
    }
    table = table_rows(records, labels, [name for name in targets for _ in range(clients)])
    write(
        folder / "config.json",
        {
            "schema": SCHEMA,
            "config": config,
            "methods": method_entries,
            "origins": {"clients": "CLI"},
            "domains": [name for name in targets for _ in range(clients)],
            "classes": CLASSES,
        },
    )
    write(folder / "environment.json", {"python": "3.11", "cores": 2, "versions": {"torch": "2.11"}})
    timing = {"total_seconds": 9.0, "setup_seconds": 3.0, "run_seconds": 6.0, "methods": dict.fromkeys(labels, 1.0)}
    write(
        folder / "summary.json",
        {"methods": summarise(table), "config": config, "timing": timing, "complete": complete},
    )
    (folder / "rounds.jsonl").write_text("".join(json.dumps(item) + "\n" for item in records))
    return folder


def record(random: Any, level: Any, clients: int, width: int, clusters: int) -> dict[str, Any]:
    """The fields of a record of one round, for clients with the accuracies ``level``."""
    count = len(level)
    labels = [k // clients % clusters for k in range(count)]
    weights = random.dirichlet(np.ones(width), count)
    return {
        "accuracy": level.tolist(),
        "accuracy_local": level.tolist(),
        "labels": labels,
        "weights": weights.tolist(),
        "pseudo_label_accuracy": (level - 5).tolist(),
        "pseudo_label_counts": [[30, 20], [10, 20], [0, 5]],
        "agreement": random.random(count).tolist(),
        "mixed": [3.0] * count,
        "dropped": [0.0] * count,
        "label_entropy": [2.0] * count,
        "bytes_down": 2_000_000,
        "bytes_up": 1_000_000,
        "passes": count,
        "seconds": {"train": 1.0, "round": 0.5, "evaluate": 0.1},
    }


def write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value))
