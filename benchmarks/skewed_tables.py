"""The table of label skew in docs/internals/measured-methods.md, from the runs of `benchmarks/skewed.sh`; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from domain_means import mean_of_known
from readings import name_machines, noted

from fedwca.results.statistics import paired_difference
from fedwca.results.tables import Table, difference_cell

RUNS = Path(__file__).resolve().parent / "results" / "skewed"
DEALS = {
    "even": "as the files are, i.i.d.",
    "clients": "clients by Dirichlet(0.3)",
    "both": "the same, source 10 to 1, targets 1 to 10: preset skewed",
}
"""Folders of runs and what their rows are called; the others are compared with the first."""
METHODS = {"fedscal": "FedSCAl", "wca": "FedWCA"}
UNTRAINED = "source_ada_bn"

ByRun = dict[int, float]
"""A number by source model."""


def measured(deal: str) -> dict[str, ByRun]:
    """Numbers of a deal in percent: accuracy, and the share of right labels in the first and the last round."""
    lines = (RUNS / deal / "rounds.jsonl").read_text().splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    last = max(record["round"] for record in records)
    found: dict[str, ByRun] = {}
    for record in records:
        method, run = record["method"], record["source_model"]
        if record["round"] == -1 and method == "source_only":
            found.setdefault("source", {})[run] = mean_of_known(record["accuracy"])
        if method == UNTRAINED:
            found.setdefault("untrained", {})[run] = mean_of_known(record["accuracy"])  # of its last record
        if record["round"] in (0, last) and method in METHODS:
            when = "first" if record["round"] == 0 else "last"
            found.setdefault(f"{method} {when}", {})[run] = mean_of_known(record["pseudo_label_accuracy"])
        if record["round"] == last and method in METHODS:
            found.setdefault(f"{method} accuracy", {})[run] = mean_of_known(record["accuracy"])
    return found


def skewed() -> str:
    """A row a deal: the untouched source model and Source + AdaBN, then of each method right labels and accuracy."""
    found = {deal: measured(deal) for deal in DEALS if (RUNS / deal / "rounds.jsonl").exists()}
    if "even" not in found:
        return "Not measured yet: `bash benchmarks/skewed.sh`."
    heads = ["Source Only", "Source + AdaBN"]
    for label in METHODS.values():
        heads += [f"{label}: labels right, round 1", "last round", "minus even", "accuracy"]
    lines = []
    for deal, own in found.items():
        cells = [f"{statistics.fmean(own[start].values()):.1f}" for start in ("source", "untrained")]
        for method in METHODS:
            cells += [f"{statistics.fmean(own[f'{method} {when}'].values()):.1f}" for when in ("first", "last")]
            beside = (
                None if deal == "even" else paired_difference(own[f"{method} last"], found["even"][f"{method} last"])
            )
            cells.append(difference_cell(beside) if beside else "")
            cells.append(f"{statistics.fmean(own[f'{method} accuracy'].values()):.1f}")
        lines.append([DEALS[deal], *cells])
    config = json.loads((RUNS / "even" / "config.json").read_text())["config"]
    machines = [json.loads((RUNS / deal / "environment.json").read_text()) for deal in found]
    training = config["training"]
    size = f"{config['clients']} clients per target domain, at most {config['samples']} images each"
    length = f"{config['rounds']} rounds of {training['epochs']} epochs, learning rate {training['lr']}"
    notes = [
        f"Percent, means over clients and n = {config['source_models']} runs with source models and splits of their",
        "own. Labels are those of training images, weighed as they train; minus even is the difference of the last",
        f"round's, paired by run, with its 95 % interval (Student's t). Digit-Five files, source {config['source']},",
        f"{size}, {length} (`benchmarks/skewed.sh`; {name_machines(machines)}).",
    ]
    return noted(Table("", ("deal", *heads), lines), notes)


BLOCKS: dict[str, Callable[[], str]] = {"skewed": skewed}
