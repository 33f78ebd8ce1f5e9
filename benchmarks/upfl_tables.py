"""The tables of docs/new-clients.md and of its makers' page, from results/upfl; no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from readings import noted, on_machines

from fedwca.data.labelled_clients import NEW, TRAINING
from fedwca.results.statistics import Difference, Sample, paired_difference
from fedwca.results.tables import MISSING, Cell, Table, difference_cell, mean_cell, sample_cell

RUNS = Path(__file__).resolve().parent / "results" / "upfl"
SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "femnist": "FEMNIST", "cifar10": "CIFAR-10"}
RUN_OF = {
    "upfl-table1-mnist": "mnist-shards",
    "upfl-table1-fashion_mnist": "fashion_mnist-shards",
    "upfl-table1-femnist": "femnist-writers",
    "upfl-table1-cifar10": "cifar10-shards",
    "upfl-table2": "cifar10-dirichlet-2",
    "upfl-figure4": "mnist-rotations",
}
"""The run folder that a table is of."""
PAIRED = "Student's t interval at 95 %"


def read_entries(name: str) -> list[dict[str, Any]]:
    """What `fedwca reproduce --format json` said of a table; empty where it was not run."""
    file = RUNS / f"{name}.json"
    if not file.exists():
        return []
    said = json.loads(file.read_text())
    entries: list[dict[str, Any]] = said["values"]
    return entries


def missing(name: str) -> str:
    return f"Not measured yet: `PIECES={name} sh benchmarks/upfl.sh`."


def hardware(*folders: str) -> str:
    """On what runs were made."""
    return on_machines(json.loads((RUNS / folder / "environment.json").read_text()) for folder in folders)


def sample(entry: dict[str, Any]) -> Cell:
    return sample_cell(Sample(entry["mean"], entry["std"], entry["n"]))


def ahead(entry: dict[str, Any]) -> Cell:
    return difference_cell(Difference(**entry["ahead"])) if entry["ahead"] else Cell("")


def printed(entry: dict[str, Any]) -> Cell:
    return Cell(MISSING) if entry["published"] is None else mean_cell(entry["published"])


def name_row(entry: dict[str, Any], runs: int) -> str:
    """The row, and where fewer of its runs ended than of others, how many diverged."""
    lost = runs - entry["n"]
    return f"{entry['row']} (diverged in {lost} of {runs} runs)" if lost else str(entry["row"])


def by_group(name: str) -> str:
    """A line for each group of clients and row: ours, to FedAvg, printed."""
    entries = read_entries(name)
    if not entries:
        return missing(name)
    first = entries[0]["row"]
    runs = max(e["n"] for e in entries)
    lines = [[f"{e['group']}: {name_row(e, runs)}", sample(e), ahead(e), printed(e)] for e in entries]
    notes = [
        f"Percent, mean ± std (ddof 1) over n = {runs} seeds. − {first}: paired by seed, {PAIRED}.",
        hardware(RUN_OF[name]),
    ]
    return Table("", ("clients: row", "ours", f"− {first}", "printed"), lines, notes).markdown()


def by_set() -> str:
    """New clients of Table 1, a pair of columns a data set: ours, printed."""
    found = {name: read_entries(f"upfl-table1-{name}") for name in SETS}
    if not any(found.values()):
        return missing("upfl-table1-mnist")
    own = {name: {e["row"]: e for e in entries if e["group"] == NEW} for name, entries in found.items() if entries}
    rows = list(dict.fromkeys(row for entries in own.values() for row in entries))
    n = max(e["n"] for entries in own.values() for e in entries.values())
    heads = [head for name in own for head in (SETS[name], "printed")]
    lines = []
    for row in rows:
        cells = [own[name].get(row) for name in own]
        row = next((name_row(e, n) for e in cells if e and e["n"] < n), row)
        lines.append([row, *(each for e in cells for each in ((sample(e), printed(e)) if e else ("", "")))])
    notes = [
        f"Percent of new clients' images, mean ± std (ddof 1) over n = {n} seeds, in the round that was best on",
        "training clients' validation images. Printed: the paper's Table 1, with more images and rounds.",
        hardware(*(RUN_OF[f"upfl-table1-{name}"] for name in own)),
    ]
    return Table("", ("row", *heads), lines, notes).markdown()


def by_alpha() -> str:
    """Table 2, a column for each alpha of new clients."""
    entries = read_entries("upfl-table2")
    if not entries:
        return missing("upfl-table2")
    groups = list(dict.fromkeys(e["group"] for e in entries))
    rows = list(dict.fromkeys(e["row"] for e in entries))
    at = {(e["row"], e["group"]): e for e in entries}
    lines: list[Sequence[str]] = []
    for row in rows:
        lines.append([row, *(sample(at[row, group]) for group in groups)])
        lines.append(["printed", *(printed(at[row, group]) for group in groups)])
    for row in rows[1:]:
        lines.append([f"{row} − {rows[0]}", *(ahead(at[row, group]) for group in groups)])
    notes = [
        f"Percent, mean ± std (ddof 1) over n = {entries[0]['n']} seeds; differences paired by seed, {PAIRED}.",
        hardware(RUN_OF["upfl-table2"]),
    ]
    return Table("", ("row", *groups), lines, notes).markdown()


def worth() -> str:
    """FedTTA minus TENT with as many rounds, and with as much work, in each cell of the figure."""
    file = RUNS / "learned_adaptation.json"
    if not file.exists():
        return "Not measured yet: `python benchmarks/learned_adaptation.py`."
    found = json.loads(file.read_text())
    names = list(found["cells"][0]["accuracy"])
    lines = []
    for cell in found["cells"]:
        means = [sum(cell["accuracy"][name]) / len(cell["accuracy"][name]) for name in names]
        ahead_of = [difference_cell(Difference(**cell["differences"][name])) for name in names[1:3]]
        lines.append([f"{cell['alpha']:g}", str(cell["images"]), *map(mean_cell, means), *ahead_of])
    notes = [
        f"Percent of new clients' images, mean over {found['seeds']} seeds; FedTTA trains {found['rounds']} rounds.",
        f"Differences are paired by seed, {PAIRED}. Configuration: `benchmarks/results/upfl/learned_adaptation.json`.",
        on_machines([found["environment"]]),
    ]
    heads = ("alpha", "images", *names, *(f"FedTTA − {name}" for name in names[1:3]))
    return noted(Table("", heads, lines), notes)


def by_run(folder: str) -> str:
    """One run's table: clients that train, new ones, and these to FedAvg or the first row, paired by seed."""
    file = RUNS / folder / "summary.json"
    if not file.exists():
        return missing(folder)
    methods = list(json.loads(file.read_text())["methods"].values())
    first = next((entry for entry in methods if entry["label"] == "FedAvg"), methods[0])
    lines = []
    for entry in methods:
        trained = sample_cell(Sample(entry["validation"]["mean"], entry["validation"]["std"], entry["n"]))
        ahead_of = None if entry is first else paired_difference(by_seed(entry), by_seed(first))
        beside = difference_cell(ahead_of) if ahead_of else Cell("")
        lines.append([entry["label"], trained, sample_cell(Sample(entry["mean"], entry["std"], entry["n"])), beside])
    notes = [
        f"Percent, mean ± std (ddof 1) over n = {first['n']} seeds; differences paired by seed, {PAIRED}.",
        f"{hardware(folder)} Configuration: `benchmarks/results/upfl/{folder}/config.json`.",
    ]
    return noted(Table("", ("row", TRAINING, NEW, f"to {first['label']}"), lines), notes)


def by_seed(entry: dict[str, Any]) -> dict[int, float]:
    """New clients' mean of each seed."""
    return {run["source_model"]: run["mean"] for run in entry["runs"]}


BLOCKS: dict[str, Callable[[], str]] = {
    "upfl-digits-plain": partial(by_run, "digits_plain"),
    "upfl-table1": by_set,
    **{f"upfl-table1-{name}": partial(by_group, f"upfl-table1-{name}") for name in SETS},
    "upfl-table2": by_alpha,
    "upfl-figure4": partial(by_group, "upfl-figure4"),
    "upfl-lambda": partial(by_run, "mnist-lambda"),
    "upfl-worth": worth,
}
