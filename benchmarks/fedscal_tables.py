"""The table of FedSCAl's alignment terms as two means, from the runs of `benchmarks/fedscal_mean.sh`; no script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from readings import name_machines, noted

from fedwca.core.mean import mean
from fedwca.results.statistics import paired_difference
from fedwca.results.tables import Table, difference_cell

RUNS = Path(__file__).resolve().parent / "results" / "fedscal_mean"
ALL, COUNTED = "fedscal", "counted"


def read_results(name: str) -> list[dict[str, Any]]:
    """The contents of a JSON file in the run folder of each source."""
    return [json.loads(file.read_text()) for file in sorted(RUNS.glob(f"*/{name}"))]


def fedscal_mean() -> str:
    """Table with a row per kind of mean, a column per source, and the paired difference."""
    summaries = {summary["config"]["source"]: summary for summary in read_results("summary.json")}
    means = {
        name: {source: summary["methods"][name]["mean"] for source, summary in summaries.items()}
        for name in (ALL, COUNTED)
    }
    lines = [
        [label, *(f"{value:.1f}" for value in means[name].values()), f"{mean(means[name].values()):.1f}", difference]
        for name, label, difference in (
            (ALL, "all images of a batch", ""),
            (COUNTED, "images whose label counts", difference_cell(paired_difference(means[COUNTED], means[ALL]))),
        )
    ]
    config = next(iter(summaries.values()))["config"]
    training = config["training"]
    count = len(means[ALL])
    notes = [
        f"The difference is paired by source, with its 95 % interval (Student's t) over {count}.",
        f"Percent, means over clients; one source model of each source, {config['clients']} clients a domain of",
        f"{config['samples']} images, {config['rounds']} rounds of {training['epochs']} epochs, learning rate",
        f"{training['lr']}; {name_machines(read_results('environment.json'))} (`benchmarks/fedscal_mean.sh`).",
    ]
    return noted(Table("", ("a term is a mean over", *summaries, "mean", "minus all images"), lines), notes)


BLOCKS: dict[str, Callable[[], str]] = {"fedscal-mean": fedscal_mean}
