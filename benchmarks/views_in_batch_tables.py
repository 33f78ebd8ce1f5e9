"""The table of strong views in BatchNorm's batches, from the runs of `benchmarks/views_in_batch.sh`; no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from readings import check_same_settings, name_machines, noted, size

from fedwca.core.mean import mean
from fedwca.results.statistics import paired_difference
from fedwca.results.tables import Table, difference_cell

RUNS = Path(__file__).resolve().parent / "results" / "views_in_batch"
STRONG, PLAIN = "strong", "plain"
DATASETS = {"digit_five": "Digit-Five", "digits_mini": "digits-mini"}
CLASSES = {"below 0.33": (-1.0, 0.33), "0.33 to 1/2": (0.33, 0.5), "at least 1/2": (0.5, 2.0), "any": (-1.0, 2.0)}
"""Rows: the values of I that a client in it has, from the first on and below the second."""


def final_accuracies(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """I and the accuracy after the last round of each client, in percent, by method."""
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    trust = {record["method"]: record["trust"] for record in records if "trust" in record}
    accuracy = {record["method"]: record["accuracy"] for record in records}
    return {name: list(zip(trust[name], accuracy[name], strict=True)) for name in (STRONG, PLAIN)}


def mean_within(clients: list[tuple[float, float]], low: float, high: float) -> float | None:
    """Mean accuracy of the clients whose I is from ``low`` on and below ``high``; None if there are none.

    >>> mean_within([(0.1, 40.0), (0.4, 60.0), (0.5, 90.0)], 0.1, 0.5), mean_within([(0.1, 40.0)], 0.5, 1)
    (50.0, None)
    """
    values = [accuracy for trust, accuracy in clients if low <= trust < high]
    return mean(values) if values else None


def row(dataset: str, label: str, runs: Mapping[str, Mapping[str, list[tuple[float, float]]]]) -> list[str]:
    """The row of a data set and a class of I: clients, accuracies with and without strong views, and the difference."""
    low, high = CLASSES[label]
    count = sum(low <= trust < high for run in runs.values() for trust, _ in run[STRONG])
    means = {
        method: {
            name: value for name, run in runs.items() if (value := mean_within(run[method], low, high)) is not None
        }
        for method in (STRONG, PLAIN)
    }
    cells = [f"{mean(means[method].values()):.1f}" for method in (STRONG, PLAIN)]
    difference = difference_cell(paired_difference(means[STRONG], means[PLAIN]))
    return [dataset, label, f"{count} in {len(means[STRONG])}", *cells, difference]


def views_in_batch() -> str:
    """Table with a row per data set and class of I."""
    folders = sorted(RUNS.iterdir())
    runs = {folder.name: final_accuracies(folder) for folder in folders}
    configs: dict[str, dict[str, Any]] = {
        folder.name: json.loads((folder / "config.json").read_text())["config"] for folder in folders
    }
    check_same_settings(configs, "source", "seed", "dataset", "source_training")
    lines = [
        row(label, name, {run: value for run, value in runs.items() if configs[run]["dataset"] == dataset})
        for dataset, label in DATASETS.items()
        for name in CLASSES
    ]
    notes = [
        "Percent of test images after the last round, means over the clients of a run and then over runs. The",
        "difference is paired by run, with its 95 % interval (Student's t). Every client trains, whatever I is.",
        "A run is a source and a seed: Digit-Five files with seeds 10 and 11, digits-mini with 110;",
        f"{size(next(iter(configs.values())))};",
        f"{name_machines(json.loads((folder / 'environment.json').read_text()) for folder in folders)}",
        "(`benchmarks/views_in_batch.sh`).",
    ]
    head = (
        "data set",
        "I of the client",
        "clients in runs",
        "strong views in the batch",
        "without",
        "with minus without",
    )
    return noted(Table("", head, lines, heads=2), notes)


BLOCKS: dict[str, Callable[[], str]] = {"views-in-batch": views_in_batch}
