"""Write the tables in docs/ and README.md from benchmarks/results; with --check, fail where a page is stale."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import federation_tables
import fedscal_tables
import fedtab_gate_tables
import fedtab_tables
import fedtab_verdicts
import frozen_tables
import gpu_tables
import paper_size_tables
import readings
import reproduction_tables
import sfda_tables
import signature_tables
import skewed_tables
import speed_tables
import upfl_tables
import views_in_batch_tables
import wca_or_one_hot_tables
from readings import name_machine, noted

from fedwca.results.results_table import COLUMNS, DIFFERENCE, Entry, ResultColumn, results_table
from fedwca.results.statistics import interval
from fedwca.results.tables import Cell, Table, mean_cell

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
INTERNALS = (
    "performance",
    "engines",
    "measured-methods",
    "measured-several-sources",
    "measured-new-clients",
    "measured-federations",
    "measured-reproductions",
)
PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "benchmarks",
            "data",
            "engines",
            "operate",
            "several-sources",
            "new-clients",
            "fedtab",
            "fedtab-first-test",
            "fedtab-second-test",
            "wca-or-one-hot",
        )
    ),
    *(f"docs/internals/{name}.md" for name in INTERNALS),
)


def run(name: str) -> str:
    """The table of a bench: one row per method, one column per target domain, and FedWCA minus the row's method."""
    summary = json.loads((RESULTS / name / "summary.json").read_text())
    config, methods = summary["config"], summary["methods"]
    n = next(iter(methods.values()))["n"]
    fedwca_means = {(run["source_model"], run["trial"]): run["mean"] for run in methods["wca"]["runs"]}

    def minus(entry: Entry) -> Cell:
        differences = [fedwca_means[(run["source_model"], run["trial"])] - run["mean"] for run in entry["runs"]]
        return Cell("" if entry["label"] == methods["wca"]["label"] else spread(differences))

    columns = [column for column in COLUMNS if column.heading != "runs"]
    columns[columns.index(DIFFERENCE)] = ResultColumn("FedWCA minus it", minus)
    seconds = summary["timing"]["methods"]
    entries = [((entry["label"],), {**entry, "seconds": seconds[key] / n}) for key, entry in methods.items()]
    table = results_table("", entries, (f"source {config['source']}",), columns)
    return noted(table, said(name, summary, n))


def said(name: str, summary: dict[str, Any], n: int) -> list[str]:
    """Notes under a table: settings and hardware."""
    config = summary["config"]
    environment = json.loads((RESULTS / name / "environment.json").read_text())
    seeds = ", ".join(str(config["seed"] + index) for index in range(config["source_models"]))
    drawn = f"source models and splits of their own (seeds {seeds})"
    if config["trials"] > 1:
        drawn = f"splits and random numbers of their own (one source model, seed {config['seed']})"
    training = config["training"]
    size = f"at most {config['samples']}" if config["samples"] else "all"
    setting = (
        f"{config['clients']} clients per target domain, {size} images each before the split, "
        f"{config['rounds']} rounds of {training['epochs']} epochs, learning rate {training['lr']}."
    )
    machine = f"{name_machine(environment)}, other work beside it"
    configuration = f"Configuration: `benchmarks/results/{name}/config.json`."
    if name != "digits_mini":  # the page of the other tables says how to read them
        return [f"n = {n} runs with {drawn}.", setting, f"{machine[0].upper()}{machine[1:]}. {configuration}"]
    return [
        f"Percent of the clients' test images after the last round; mean ± std (ddof 1) over n = {n} runs with",
        f"{drawn}. Differences are paired by run, with Student's t interval at 95 %.",
        setting,
        f"Seconds per run, on {machine}. {configuration}",
    ]


def spread(differences: list[float]) -> str:
    """Mean paired difference and its 95 % interval."""
    mean, ends = statistics.fmean(differences), interval(differences)
    return f"{mean:+.1f}" + (f" ({ends[0]:+.1f} to {ends[1]:+.1f})" if ends else "")


def matrix() -> str:
    """Source-only accuracies on digits-mini: one row per source domain, one column per test domain."""
    result = json.loads((RESULTS / "digits_mini_matrix.json").read_text())
    rows = result["matrix"]
    lines = []
    for name, row in rows.items():
        mean_of_others = statistics.fmean(value for other, value in row.items() if other != name)
        lines.append([name, *(f"{value:.1f}" for value in row.values()), f"{mean_of_others:.1f}"])
    transfer = [value for name, row in rows.items() for other, value in row.items() if other != name]
    training = result["source_training"]
    notes = [
        f"Percent; the diagonal is a held-out tenth. Mean off the diagonal: {statistics.fmean(transfer):.1f}. LeNet, "
        f"{training['epochs']} epochs,",
        f"learning rate {training['lr']}, seed {result['seed']} (`benchmarks/digits_mini_matrix.py`; "
        f"{readings.name_machines([result['environment']])}).",
    ]
    return noted(Table("", ("trained on", *rows, "mean of the others"), lines), notes)


def choices() -> str:
    """Readings that the paper leaves open, each minus the one it is compared with, on the same seeds."""
    file = RESULTS / "choices.json"
    if not file.exists():
        return "Not measured yet: `python benchmarks/choices.py`."
    result = json.loads(file.read_text())
    return readings.table(result["results"], result["environment"])


def partition(name: str) -> str:
    """Clusters of a method that clusters clients in each round: after first and last round, one row per seed."""
    config = json.loads((RESULTS / name / "config.json").read_text())["config"]
    by_seed: dict[int, list[str]] = {}
    for line in (RESULTS / name / "rounds.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["round"] in (0, config["rounds"] - 1):
            clusters = record["clustering"]
            sizes = ", ".join(map(str, sorted(clusters["sizes"], reverse=True)))
            by_seed.setdefault(config["seed"] + record["source_model"], []).extend([sizes, f"{clusters['ari']:.2f}"])
    lines = [f"| {seed} | {' | '.join(cells)} |" for seed, cells in sorted(by_seed.items())]
    head = "| seed | sizes after round 1 | ARI | sizes after round {} | ARI |".format(config["rounds"])
    machine = readings.name_machines([json.loads((RESULTS / name / "environment.json").read_text())])
    return "\n".join(
        [head, "|---|---|--:|---|--:|", *lines, "", f"{machine}; `benchmarks/results/{name}/config.json`."]
    )


JOINED = {
    "source model": "source model",
    "took part": "took part from the start: cluster model",
    "joined, update": "joined by update",
    "joined, alignment": "joined by alignment",
    "joined and adapted, update": "joined by update, then 5 epochs of its own",
    "joined and adapted, alignment": "joined by alignment, then 5 epochs of its own",
}


def joined() -> str:
    """Accuracy of clients that join after training, by how they got their model."""
    result = json.loads((RESULTS / "join.json").read_text())
    accuracy, config = result["summary"]["accuracy"], result["config"]
    lines = [[label, mean_cell(accuracy[key]["mean"], accuracy[key]["std"])] for key, label in JOINED.items()]
    training = f"{config['rounds']} rounds of {config['epochs']} epochs, learning rate {config['lr']}"
    machine = readings.name_machines([result["environment"]])
    counts = sorted({accuracy[key]["n"] for key in JOINED})
    notes = [
        f"Percent, mean ± std (ddof 1) over {' to '.join(map(str, counts))} seeds; {training}",
        f"(`benchmarks/join.py`; {machine}).",
    ]
    return noted(Table("", ("how they got their model", "accuracy"), lines), notes)


BLOCKS: dict[str, Callable[[], str]] = {
    **{
        name: lambda name=name: run(name)  # type: ignore[misc]
        for name in (
            "digit_five-mnist",
            "digit_five-synth",
            "digit_five-mnistm",
            "digits_mini",
        )
    },
    "digits_mini_matrix": matrix,
    "digits_mini-ifca": lambda: partition("digits_mini-ifca"),
    "choices": choices,
    "join": joined,
    "federation-wire": federation_tables.wire,
    "federation-signature": federation_tables.signature,
    "federation-cost": federation_tables.cost,
    "peers": speed_tables.peers,
    "many_clients": speed_tables.many_clients,
    "finch_scale": speed_tables.finch_scale,
    "cpu_targets": speed_tables.cpu_targets,
    "cpu_targets_xeon": lambda: speed_tables.cpu_targets("cpu_targets_xeon"),
    "gate": speed_tables.gate,
    "kernels": speed_tables.kernels,
    "mixed": speed_tables.mixed,
    "by_hand": speed_tables.by_hand,
    "small_maps": speed_tables.small_maps,
    "profile_round": speed_tables.profile_round,
    "federation-defences": federation_tables.defences,
    "federation-noise": federation_tables.noise,
    "federation-moment-noise": federation_tables.moment_noise,
    "federation-messages": federation_tables.messages,
    "federation-rounds": federation_tables.rounds,
    **reproduction_tables.BLOCKS,
    **sfda_tables.BLOCKS,
    **upfl_tables.BLOCKS,
    **fedtab_tables.BLOCKS,
    **fedtab_verdicts.BLOCKS,
    **fedtab_gate_tables.BLOCKS,
    **skewed_tables.BLOCKS,
    **fedscal_tables.BLOCKS,
    **views_in_batch_tables.BLOCKS,
    **frozen_tables.BLOCKS,
    **gpu_tables.BLOCKS,
    **wca_or_one_hot_tables.BLOCKS,
    **signature_tables.BLOCKS,
    **paper_size_tables.BLOCKS,
}


def filled(text: str) -> str:
    """A page in which each block between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is written anew."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- begin {match[1]} -->\n{BLOCKS[match[1]]()}\n<!-- end {match[1]} -->"

    return re.sub(r"<!-- begin (\S+) -->\n.*?<!-- end \1 -->", block, text, flags=re.S)


def main() -> int:
    stale = []
    for page in PAGES:
        path = ROOT / page
        old_text = path.read_text()
        new_text = filled(old_text)
        if new_text != old_text:
            stale.append(page)
            if "--check" not in sys.argv:
                path.write_text(new_text)
    for page in stale:
        print(f"{page}: {'out of date; run python benchmarks/tables.py' if '--check' in sys.argv else 'written'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
