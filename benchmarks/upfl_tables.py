"""The tables of docs/new-clients.md and of its makers' page, from results/upfl; no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from readings import environments, noted, on_machines

from fedwca.core.mean import without_rounding
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
"""The run folder behind each table."""
PAIRED = "Student's t interval at 95 %"


def read_entries(name: str) -> list[dict[str, Any]]:
    """Entries of a table, as `fedwca reproduce --format json` wrote them; empty if it has not been run."""
    file = RUNS / f"{name}.json"
    if not file.exists():
        return []
    result = json.loads(file.read_text())
    entries: list[dict[str, Any]] = result["values"]
    return entries


def missing(name: str) -> str:
    return f"Not measured yet: `PIECES={name} bash benchmarks/upfl.sh`."


def hardware(*folders: str) -> str:
    """The hardware that runs were made on, as a sentence."""
    return on_machines(json.loads((RUNS / folder / "environment.json").read_text()) for folder in folders)


def runs_of(entry: dict[str, Any]) -> int:
    """Number of runs behind an entry, including those that diverged, which are in no mean."""
    return int(entry["n"] + entry["diverged"])


def sample(entry: dict[str, Any]) -> Cell:
    """Mean ± std, with the number of diverged runs if there are any."""
    cell = sample_cell(Sample(entry["mean"], entry["std"], entry["n"])) if entry["n"] else Cell(MISSING)
    mark = f" (diverged in {entry['diverged']} of {runs_of(entry)} runs)" if entry["diverged"] else ""
    return Cell(cell + mark, cell.value)


def ahead(entry: dict[str, Any]) -> Cell:
    if not entry["ahead"]:
        return Cell("")
    # Stored by a version that kept what is rounding alone.
    return difference_cell(Difference(**{name: v and without_rounding(v) for name, v in entry["ahead"].items()}))


def printed(entry: dict[str, Any]) -> Cell:
    return Cell(MISSING) if entry["published"] is None else mean_cell(entry["published"])


def by_group(name: str) -> str:
    """One line per group of clients and row: ours, the difference to the first row, and the paper's number."""
    entries = read_entries(name)
    if not entries:
        return missing(name)
    first = entries[0]["row"]
    runs = max(map(runs_of, entries))
    lines = [[f"{entry['group']}: {entry['row']}", sample(entry), ahead(entry), printed(entry)] for entry in entries]
    notes = [
        f"Percent, mean ± std (ddof 1) over n = {runs} seeds. − {first}: paired by seed, {PAIRED}.",
        hardware(RUN_OF[name]),
    ]
    return Table("", ("clients: row", "ours", f"− {first}", "printed"), lines, notes).markdown()


def by_set() -> str:
    """New clients of Table 1: two columns per data set, ours and the paper's."""
    entries_by_set = {name: read_entries(f"upfl-table1-{name}") for name in SETS}
    if not any(entries_by_set.values()):
        return missing("upfl-table1-mnist")
    rows_by_set = {
        name: {entry["row"]: entry for entry in entries if entry["group"] == NEW}
        for name, entries in entries_by_set.items()
        if entries
    }
    rows = list(dict.fromkeys(row for entries in rows_by_set.values() for row in entries))
    n_by_set = {name: max(map(runs_of, entries.values())) for name, entries in rows_by_set.items()}
    n = str(max(n_by_set.values()))
    if len(set(n_by_set.values())) > 1:
        n = ", ".join(f"{count} ({SETS[name]})" for name, count in n_by_set.items())
    heads = [head for name in rows_by_set for head in (SETS[name], "printed")]
    lines = []
    for row in rows:
        row_entries = [rows_by_set[name].get(row) for name in rows_by_set]
        lines.append(
            [row, *(cell for entry in row_entries for cell in ((sample(entry), printed(entry)) if entry else ("", "")))]
        )
    notes = [
        f"Percent of new clients' images, mean ± std (ddof 1) over n = {n} seeds, in the round that was best on",
        "training clients' validation images. Printed: the paper's Table 1, with more images and rounds.",
        hardware(*(RUN_OF[f"upfl-table1-{name}"] for name in rows_by_set)),
    ]
    return Table("", ("row", *heads), lines, notes).markdown()


def by_alpha() -> str:
    """Table 2: one column per alpha of new clients."""
    entries = read_entries("upfl-table2")
    if not entries:
        return missing("upfl-table2")
    groups = list(dict.fromkeys(entry["group"] for entry in entries))
    rows = list(dict.fromkeys(entry["row"] for entry in entries))
    by_cell = {(entry["row"], entry["group"]): entry for entry in entries}
    lines: list[Sequence[str]] = []
    for row in rows:
        lines.append([row, *(sample(by_cell[row, group]) for group in groups)])
        lines.append(["printed", *(printed(by_cell[row, group]) for group in groups)])
    for row in rows[1:]:
        lines.append([f"{row} − {rows[0]}", *(ahead(by_cell[row, group]) for group in groups)])
    runs = max(map(runs_of, entries))
    notes = [
        f"Percent, mean ± std (ddof 1) over n = {runs} seeds; differences paired by seed, {PAIRED}.",
        hardware(RUN_OF["upfl-table2"]),
    ]
    return Table("", ("row", *groups), lines, notes).markdown()


def worth() -> str:
    """One row per cell of the figure: FedTTA minus TENT with as many rounds, and with as much work."""
    file = RUNS / "learned_adaptation.json"
    if not file.exists():
        return "Not measured yet: `python benchmarks/learned_adaptation.py`."
    result = json.loads(file.read_text())
    names = list(result["cells"][0]["accuracy"])
    lines = []
    for cell in result["cells"]:
        means = [sum(cell["accuracy"][name]) / len(cell["accuracy"][name]) for name in names]
        differences = [difference_cell(Difference(**cell["differences"][name])) for name in names[1:3]]
        lines.append([f"{cell['alpha']:g}", str(cell["images"]), *map(mean_cell, means), *differences])
    notes = [
        f"Percent of new clients' images, mean over {result['seeds']} seeds; FedTTA trains {result['rounds']} rounds.",
        f"Differences are paired by seed, {PAIRED}. Configuration: `benchmarks/results/upfl/learned_adaptation.json`.",
        on_machines(environments(result, result["cells"])),
    ]
    heads = ("alpha", "images", *names, *(f"FedTTA − {name}" for name in names[1:3]))
    return noted(Table("", heads, lines), notes)


def by_run(folder: str) -> str:
    """The table of a run: accuracy of training clients and of new clients, and a difference paired by seed.

    The difference is that of new clients to FedAvg, or to the first row if there is no FedAvg.
    """
    file = RUNS / folder / "summary.json"
    if not file.exists():
        return missing(folder)
    methods = json.loads(file.read_text())["methods"].values()
    methods = [entry | {"diverged": len(entry.get("diverged", ()))} for entry in methods]
    first = next((entry for entry in methods if entry["label"] == "FedAvg"), methods[0])
    lines = []
    for entry in methods:
        trained = sample_cell(Sample(entry["validation"]["mean"], entry["validation"]["std"], entry["n"]))
        difference = None if entry is first else paired_difference(by_seed(entry), by_seed(first))
        difference_text = difference_cell(difference) if difference else Cell("")
        lines.append([entry["label"], trained, sample(entry), difference_text])
    notes = [
        f"Percent, mean ± std (ddof 1) over n = {runs_of(first)} seeds; differences paired by seed, {PAIRED}.",
        f"{hardware(folder)} Configuration: `benchmarks/results/upfl/{folder}/config.json`.",
    ]
    return noted(Table("", ("row", TRAINING, NEW, f"to {first['label']}"), lines), notes)


def by_seed(entry: dict[str, Any]) -> dict[int, float]:
    """New clients' mean accuracy by seed."""
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
