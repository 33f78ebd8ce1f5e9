"""The tables of docs/internals/measured-reproductions.md, from `fedwca reproduce --quick` in results/reproduce."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from readings import check_same_settings, name_machines, noted
from sklearn.metrics import adjusted_rand_score

from fedwca.config.method_spec import parse_method
from fedwca.reproduce.definitions import definition, layer_clusterer, published_table
from fedwca.results.tables import Table, mean_cell

RUNS = Path(__file__).resolve().parent / "results" / "reproduce"
NAMES = {"mnist": "MNIST", "synth": "SYNTH", "art_painting": "Art Painting"}
COUNTS = {1: "one cluster", 2: "two clusters", 3: "three clusters"}


def folders(dataset: str, source: str, probed: bool) -> list[tuple[Path, dict[str, Any]]]:
    """Run folders of a source domain with their summaries; ``probed``: of the runs for clusters, not for accuracy."""
    runs = [(path.parent, json.loads(path.read_text())) for path in sorted(RUNS.glob("*/summary.json"))]
    key = (dataset, source, probed)
    return [
        (path, summary)
        for path, summary in runs
        if key == (summary["config"]["dataset"], summary["config"]["source"], bool(summary["config"]["probes"]))
    ]


def accuracies(table: str, dataset: str, sources: Sequence[str]) -> str:
    """One row per method, one column per source, and the mean if there are several sources.

    If the paper prints numbers for this data set, they are in a last column, and rows are in the order of our means.

    Raises:
        ValueError: folders differ in their settings.
    """
    runs_by_source = [folders(dataset, source, False) for source in sources]
    configs = {path.name: summary["config"] for runs in runs_by_source for path, summary in runs}
    check_same_settings(configs, "source")
    by_source = [
        {name: entry for _, summary in runs for name, entry in summary["methods"].items()} for runs in runs_by_source
    ]
    entries = {
        row: [entries_by_name[parse_method(method).name] for entries_by_name in by_source]
        for row, method in definition(table).rows.items()
    }
    means = {row: statistics.fmean(entry["mean"] for entry in row_entries) for row, row_entries in entries.items()}
    printed, single_source = published_table(table, dataset), len(sources) == 1
    order = sorted(means, key=lambda row: (row != "Source Only", means[row])) if printed else list(means)
    head = [f"Table {table.removeprefix('table')}"]
    head = (
        [f"{head[0]}, {NAMES[sources[0]]}", "ours"] if single_source else [*head, *(NAMES[s] for s in sources), "mean"]
    )
    head += ["printed" if single_source else "printed mean of these two"] if printed else []
    lines = []
    for row in order:
        source_cells = [mean_cell(entry["mean"], entry["std"]) for entry in entries[row]]
        cells = [row, *source_cells, *([] if single_source else [mean_cell(means[row])])]
        if printed:
            cells.append(mean_cell(statistics.fmean(printed.values[row, source][0] for source in sources)))
        lines.append(cells)
    paths = [path for runs in runs_by_source for path, _ in runs]
    return noted(Table("", head, lines), [say_where(paths)])


def say_where(paths: Sequence[Path]) -> str:
    """Hardware of runs and where their configurations are, for a note."""
    machines = name_machines(json.loads((path / "environment.json").read_text()) for path in paths)
    return f"{machines}; configurations in `benchmarks/results/reproduce`."


def layers(samples: int | None) -> str:
    """One row per pair of (clusters in our run, clusters in the paper), with the layers that have these numbers.

    Args:
        samples: of our run, at most so many images per client; None: all.
    """
    runs = folders("pacs", "art_painting", True)
    (path,) = (path for path, summary in runs if summary["config"]["samples"] == samples)
    first = next(r for r in map(json.loads, (path / "rounds.jsonl").read_text().splitlines()) if r["round"] == 0)
    printed = published_table("table11", "pacs")
    assert printed
    layers_by_counts: dict[tuple[int, int], list[tuple[str, Sequence[Any], Sequence[Any]]]] = {}
    for layer, signature in definition("table11").signatures.items():
        ours, published = first["probes"][layer_clusterer(signature)]["labels"], printed.clusters[layer]
        layers_by_counts.setdefault((len(set(ours)), len(set(published))), []).append((layer, ours, published))
    lines = []
    for (ours, published), rows in layers_by_counts.items():
        names, our_clusterings, published_clusterings = zip(*rows, strict=True)
        lines.append([", ".join(names), told(ours, our_clusterings), told(published, published_clusterings)])
    return noted(Table("", ("Layers", "ours", "printed"), lines, heads=3), [say_where([path])])


def told(count: int, clusterings: Sequence[Sequence[Any]]) -> str:
    """Number of clusters and the adjusted Rand index of each clustering to the three domains.

    Args:
        count: clusters of each clustering.
        clusterings: clusters of nine clients, three of each domain in turn.
    """
    ari = [adjusted_rand_score([client // 3 for client in range(9)], list(labels)) for labels in clusterings]
    if min(ari) == 1:
        return "the three domains (ARI 1)"
    return COUNTS[count] + (f" (ARI {', '.join(f'{value:.2f}' for value in ari)})" if count > 1 else "")


BLOCKS: dict[str, Callable[[], str]] = {
    "reproduce-table2": lambda: accuracies("table2", "digit_five", ("mnist", "synth")),
    "reproduce-table3": lambda: accuracies("table3", "digit_five", ("mnist", "synth")),
    "reproduce-table5": lambda: accuracies("table5", "digit_five", ("mnist", "synth")),
    "reproduce-table2-pacs": lambda: accuracies("table2", "pacs", ("art_painting",)),
    "reproduce-table11": lambda: layers(240),
    "reproduce-table11-all": lambda: layers(None),
}
