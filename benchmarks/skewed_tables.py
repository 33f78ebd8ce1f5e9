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
"""Run folders and the labels of their rows; the others are compared with the first."""
METHODS = {"fedscal": "FedSCAl", "wca": "FedWCA"}
UNTRAINED = "source_ada_bn"

ByRun = dict[int, float]
"""A number by source model."""


def measured(deal: str) -> dict[str, ByRun]:
    """Percentages by name and source model: accuracy, and right pseudo-labels in the first and the last round."""
    lines = (RUNS / deal / "rounds.jsonl").read_text().splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    last = max(record["round"] for record in records)
    values_by_name: dict[str, ByRun] = {}
    for record in records:
        method, run = record["method"], record["source_model"]
        if record["round"] == -1 and method == "source_only":
            values_by_name.setdefault("source", {})[run] = mean_of_known(record["accuracy"])
        if method == UNTRAINED:
            # The value of the last record stays.
            values_by_name.setdefault("untrained", {})[run] = mean_of_known(record["accuracy"])
        if record["round"] in (0, last) and method in METHODS:
            phase = "first" if record["round"] == 0 else "last"
            values_by_name.setdefault(f"{method} {phase}", {})[run] = mean_of_known(record["pseudo_label_accuracy"])
        if record["round"] == last and method in METHODS:
            values_by_name.setdefault(f"{method} accuracy", {})[run] = mean_of_known(record["accuracy"])
    return values_by_name


def skewed() -> str:
    """One row per deal: the untouched source model, Source + AdaBN, then right labels and accuracy of each method."""
    values_by_deal = {deal: measured(deal) for deal in DEALS if (RUNS / deal / "rounds.jsonl").exists()}
    if "even" not in values_by_deal:
        return "Not measured yet: `bash benchmarks/skewed.sh`."
    heads = ["Source Only", "Source + AdaBN"]
    for label in METHODS.values():
        heads += [f"{label}: labels right, round 1", "last round", "minus even", "accuracy"]
    lines = []
    for deal, values in values_by_deal.items():
        cells = [f"{statistics.fmean(values[name].values()):.1f}" for name in ("source", "untrained")]
        for method in METHODS:
            cells += [f"{statistics.fmean(values[f'{method} {phase}'].values()):.1f}" for phase in ("first", "last")]
            difference = (
                None
                if deal == "even"
                else paired_difference(values[f"{method} last"], values_by_deal["even"][f"{method} last"])
            )
            cells.append(difference_cell(difference) if difference else "")
            cells.append(f"{statistics.fmean(values[f'{method} accuracy'].values()):.1f}")
        lines.append([DEALS[deal], *cells])
    config = json.loads((RUNS / "even" / "config.json").read_text())["config"]
    machines = [json.loads((RUNS / deal / "environment.json").read_text()) for deal in values_by_deal]
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
