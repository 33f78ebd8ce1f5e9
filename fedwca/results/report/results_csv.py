"""The results on a page as a CSV file that is embedded in the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fedwca.results.class_scores import name_class
from fedwca.results.read_run import Run
from fedwca.results.results_table import ON_REQUEST
from fedwca.results.tables import comma_separated

NOTHING = {"mean": None, "std": None}
WHERE_MEASURED = ("difference", "before", "validation", "round", "last")
"""Columns that the table has only where a method has them."""


def csv_address(runs: Sequence[Run], names: Sequence[str]) -> str:
    """The CSV of `results_csv` as a ``data:`` URL."""
    return "data:text/csv;charset=utf-8," + quote(results_csv(runs, names) + "\n", safe="")


def results_csv(runs: Sequence[Run], names: Sequence[str]) -> str:
    """A row per run and method: every number of the table, and accuracies by domain and by class.

    Args:
        runs: the runs, in order.
        names: display name of each run.
    """
    results = [(run, name, method, entry) for run, name in zip(runs, names, strict=True)
             for method, entry in run.results.items()]  # fmt: skip
    domains = dict.fromkeys(domain for *_, entry in results for domain in entry["domains"])
    classes = dict.fromkeys(label for run, *_, entry in results for label in _by_class(run, entry))
    rows: list[dict[str, Any]] = [
        {
            "run": name,
            "method": method,
            "label": entry["label"],
            "n": entry["n"],
            "mean": entry["mean"],
            "std": entry["std"],
            **{number: entry.get(number) or NOTHING for number in (*ON_REQUEST, *WHERE_MEASURED)},
            "seconds": run.seconds(method),
            "accuracy": {domain: entry["domains"].get(domain) for domain in domains},
            "accuracy_std": {domain: entry["domain_stds"].get(domain) for domain in domains},
            "accuracy_of_class": {label: _by_class(run, entry).get(label) for label in classes},
        }
        for run, name, method, entry in results
    ]
    return comma_separated(rows)


def _by_class(run: Run, entry: Any) -> dict[str, float | None]:
    """Accuracy by class name, or by class number if the name is not known."""
    return {name_class(int(label), run.classes): value for label, value in entry.get("class_accuracy", {}).items()}
