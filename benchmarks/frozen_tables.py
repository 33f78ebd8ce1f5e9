"""The tables of frozen backbones, from the runs of `benchmarks/frozen.sh`; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from readings import check_same_settings, name_machines, noted

from fedwca.results.statistics import paired_difference
from fedwca.results.tables import Table, difference_cell

RUNS = Path(__file__).resolve().parent / "results" / "frozen"
SOURCES = ("art_painting", "cartoon", "photo", "sketch")
OWN, UNTRAINED = "wca", "source_ada_bn"

Summary = dict[str, Any]


def read_summaries(end: str = "") -> dict[str, Summary]:
    """Summaries of finished runs by source; ``end`` is a suffix of the run folders.

    Raises:
        ValueError: folders differ in their settings.
    """
    files = {source: RUNS / f"{source}{end}" / "summary.json" for source in SOURCES}
    summaries = {source: json.loads(file.read_text()) for source, file in files.items() if file.exists()}
    check_same_settings({f"{source}{end}": summary["config"] for source, summary in summaries.items()}, "source")
    return summaries


def by_run(summaries: dict[str, Summary], method: str) -> dict[tuple[str, int, int], float]:
    """Mean accuracy over a method's clients by (source, source model, trial)."""
    return {
        (source, run["source_model"], run["trial"]): run["mean"]
        for source, summary in summaries.items()
        for run in summary["methods"][method]["runs"]
    }


def seconds_of_round(source: str, summary: Summary, method: str) -> float:
    """Seconds per round of a method, which include everything else that its runs do."""
    rounds = json.loads((RUNS / source / "config.json").read_text())["methods"][method]["rounds"]
    return float(summary["timing"]["methods"][method] / summary["methods"][method]["n"] / max(1, rounds))


def rows(summaries: dict[str, Summary]) -> list[list[str]]:
    """A row per method: mean by source, mean over all runs, and paired difference over all runs."""
    own_means, lines = by_run(summaries, OWN), []
    for method, entry in next(iter(summaries.values()))["methods"].items():
        means = by_run(summaries, method)
        cells = [
            f"{statistics.fmean(by_run({source: summaries[source]}, method).values()):.1f}" for source in summaries
        ]
        difference = "" if method == OWN else difference_cell(paired_difference(own_means, means))
        lines.append([entry["label"], *cells, f"{statistics.fmean(means.values()):.1f}", difference])
    return lines


def frozen() -> str:
    """Table with a row per method: mean by source, paired difference over all runs, and seconds per round."""
    summaries = read_summaries()
    if not summaries:
        return "Not measured yet: `bash benchmarks/frozen.sh`."
    first = next(iter(summaries.values()))
    seconds = [
        f"{statistics.fmean(seconds_of_round(source, summary, method) for source, summary in summaries.items()):.1f}"
        for method in first["methods"]
    ]
    lines = [[*row, cell] for row, cell in zip(rows(summaries), seconds, strict=True)]
    config, training = first["config"], first["config"]["training"]
    machines = [read_environment(source) for source in summaries]
    runs = len(summaries) * config["source_models"]
    notes = [
        f"Percent, means over clients and n = {config['source_models']} source models of each source; FedWCA minus it",
        f"is paired over all {runs} runs, with its 95 % interval (Student's t). PACS at",
        f"64 pixels, {config['clients']} clients per target domain, at most {config['samples']} images each,",
        f"{config['rounds']} rounds of {training['epochs']} epochs, learning rate {training['lr']}; the defaults",
        "lambda = 0.1, T_a = 0.01, and k = 4 for IFCA. Seconds a round:",
        f"{name_machines(machines)}, other work beside it (`benchmarks/frozen.sh`;",
        "configurations in `benchmarks/results/frozen`).",
    ]
    return noted(Table("", ("method", *summaries, "mean", "FedWCA minus it", "seconds a round"), lines), notes)


def read_environment(folder: str) -> dict[str, Any]:
    """Hardware and versions of a run."""
    environment: dict[str, Any] = json.loads((RUNS / folder / "environment.json").read_text())
    return environment


def printed() -> str:
    """The same table for a few methods with the values of the paper's Table 9 for PACS, and means with the defaults."""
    summaries, defaults = read_summaries("-printed"), read_summaries()
    if not summaries:
        return "Not measured yet: `PRINTED=1 bash benchmarks/frozen.sh`."
    for source, summary in summaries.items():  # the clusterer is named in one and a method's own in the other
        check_same_settings({f"{source}-printed": summary["config"], source: defaults[source]["config"]}, "clusterer")
    # Source + AdaBN comes from the default runs: it has the same source models, and uses neither lambda nor T_a.
    for source, summary in summaries.items():
        own_entry = summary["methods"].pop(OWN)
        summary["methods"] |= {UNTRAINED: defaults[source]["methods"][UNTRAINED], OWN: own_entry}
    methods = next(iter(summaries.values()))["methods"]
    default_means = [
        f"{statistics.fmean(by_run({source: defaults[source] for source in summaries}, name).values()):.1f}"
        for name in methods
    ]
    lines = [[*row, cell] for row, cell in zip(rows(summaries), default_means, strict=True)]
    machines = [read_environment(f"{source}-printed") for source in summaries]
    notes = [
        f"As above, with the paper's lambda = 0.3 and T_a = 0.1 (Table 9), and IFCA's k = 3; {name_machines(machines)}."
    ]
    return noted(Table("", ("method", *summaries, "mean", "FedWCA minus it", "with the defaults"), lines), notes)


def whole() -> str:
    """Table of seconds per round with all images of PACS."""
    file = RUNS / "whole" / "summary.json"
    if not file.exists():
        return "Not measured yet: `WHOLE=1 bash benchmarks/frozen.sh`."
    summary = json.loads(file.read_text())
    methods = summary["methods"].items()
    lines = [[entry["label"], f"{seconds_of_round('whole', summary, method):.1f}"] for method, entry in methods]
    notes = [f"Source photo, nine clients; {name_machines([read_environment('whole')])}."]
    return noted(Table("", ("method", "seconds a round"), lines), notes)


def trust() -> str:
    """Table of the clients that FedTAB trusts by source, and of the source model's accuracy."""
    lines = []
    for source, summary in read_summaries().items():
        records = [json.loads(line) for line in (RUNS / source / "fedtab.jsonl").read_text().splitlines()]
        values = [value for record in records for value in record["trust"]]
        trusted = [is_trusted for record in records for is_trusted in record["trusted"]]
        right = statistics.fmean(by_run({source: summary}, "source_only").values())
        spread = f"{statistics.fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
        lines.append([source, f"{right:.1f}", spread, f"{sum(trusted)} of {len(trusted)}"])
    machines = [read_environment(source) for source in read_summaries()]
    notes = [
        "PACS at 64 pixels, frozen ResNet-18; clients of three source models (`benchmarks/frozen.sh`; "
        f"{name_machines(machines)})."
    ]
    return noted(Table("", ("source", "Source Only (%)", "I, mean (least to most)", "trusted"), lines), notes)


BLOCKS: dict[str, Callable[[], str]] = {
    "frozen": frozen,
    "frozen-printed": printed,
    "frozen-whole": whole,
    "frozen-trust": trust,
}
