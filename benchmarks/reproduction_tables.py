"""The tables of docs/internals/measured-reproductions.md, from `fedwca reproduce --quick` in results/reproduce."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from readings import name_machines, noted
from sklearn.metrics import adjusted_rand_score

from fedwca.config.method_spec import parse_method
from fedwca.reproduce.definitions import definition, layer_clusterer, published_table
from fedwca.results.tables import Table, mean_cell

RUNS = Path(__file__).resolve().parent / "results" / "reproduce"
NAMES = {"mnist": "MNIST", "synth": "SYNTH", "art_painting": "Art Painting"}
COUNTS = {1: "one cluster", 2: "two clusters", 3: "three clusters"}


def folders(dataset: str, source: str, probed: bool) -> list[tuple[Path, dict[str, Any]]]:
    """Runs of a source with their summaries; ``probed``: those that were run for clusters, the others for accuracy."""
    found = [(path.parent, json.loads(path.read_text())) for path in sorted(RUNS.glob("*/summary.json"))]
    wanted = (dataset, source, probed)
    return [
        (path, summary)
        for path, summary in found
        if wanted == (summary["config"]["dataset"], summary["config"]["source"], bool(summary["config"]["probes"]))
    ]


def accuracies(table: str, dataset: str, sources: Sequence[str]) -> str:
    """A row a method, a column a source, the mean of several.

    Where the paper prints numbers for this data set they stand beside ours, and rows are in the order of our means.
    """
    by_source = [
        {name: entry for _, summary in folders(dataset, source, False) for name, entry in summary["methods"].items()}
        for source in sources
    ]
    entries = {row: [by[parse_method(word).name] for by in by_source] for row, word in definition(table).rows.items()}
    means = {row: statistics.fmean(entry["mean"] for entry in own) for row, own in entries.items()}
    printed, one = published_table(table, dataset), len(sources) == 1
    order = sorted(means, key=lambda row: (row != "Source Only", means[row])) if printed else list(means)
    head = [f"Table {table.removeprefix('table')}"]
    head = [f"{head[0]}, {NAMES[sources[0]]}", "ours"] if one else [*head, *(NAMES[s] for s in sources), "mean"]
    head += ["printed" if one else "printed mean of these two"] if printed else []
    lines = []
    for row in order:
        own = [mean_cell(entry["mean"], entry["std"]) for entry in entries[row]]
        cells = [row, *own, *([] if one else [mean_cell(means[row])])]
        if printed:
            cells.append(mean_cell(statistics.fmean(printed.values[row, source][0] for source in sources)))
        lines.append(cells)
    used = [path for source in sources for path, _ in folders(dataset, source, False)]
    return noted(Table("", head, lines), [say_where(used)])


def say_where(paths: Sequence[Path]) -> str:
    """Configurations and hardware of runs."""
    machines = name_machines(json.loads((path / "environment.json").read_text()) for path in paths)
    return f"{machines}; configurations in `benchmarks/results/reproduce`."


def layers(samples: int | None) -> str:
    """Layers with as many clusters in our run and in the paper's, a row for each pair of numbers.

    Args:
        samples: images a client at most in that run; None: all.
    """
    found = folders("pacs", "art_painting", True)
    (path,) = (path for path, summary in found if summary["config"]["samples"] == samples)
    first = next(r for r in map(json.loads, (path / "rounds.jsonl").read_text().splitlines()) if r["round"] == 0)
    printed = published_table("table11", "pacs")
    assert printed
    alike: dict[tuple[int, int], list[tuple[str, Sequence[Any], Sequence[Any]]]] = {}
    for layer, signature in definition("table11").signatures.items():
        ours, theirs = first["probes"][layer_clusterer(signature)]["labels"], printed.clusters[layer]
        alike.setdefault((len(set(ours)), len(set(theirs))), []).append((layer, ours, theirs))
    lines = []
    for (ours, theirs), rows in alike.items():
        names, own, other = zip(*rows, strict=True)
        lines.append([", ".join(names), told(ours, own), told(theirs, other)])
    return noted(Table("", ("Layers", "ours", "printed"), lines, heads=3), [say_where([path])])


def told(count: int, clusterings: Sequence[Sequence[Any]]) -> str:
    """How many clusters there are, and the adjusted Rand indices to the three domains, whose clients stand together."""
    found = [adjusted_rand_score([client // 3 for client in range(9)], list(labels)) for labels in clusterings]
    if min(found) == 1:
        return "the three domains (ARI 1)"
    return COUNTS[count] + (f" (ARI {', '.join(f'{value:.2f}' for value in found)})" if count > 1 else "")


BLOCKS: dict[str, Callable[[], str]] = {
    "reproduce-table2": lambda: accuracies("table2", "digit_five", ("mnist", "synth")),
    "reproduce-table3": lambda: accuracies("table3", "digit_five", ("mnist", "synth")),
    "reproduce-table5": lambda: accuracies("table5", "digit_five", ("mnist", "synth")),
    "reproduce-table2-pacs": lambda: accuracies("table2", "pacs", ("art_painting",)),
    "reproduce-table11": lambda: layers(240),
    "reproduce-table11-all": lambda: layers(None),
}
