"""From rounds to a table: a row per method, a column per target domain, mean ± std over runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedwca.data.metrics import mean
from fedwca.results.reference_method import reference_among
from fedwca.results.statistics import deviation as deviation

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One method over all its runs; accuracies in percent."""

    name: str
    label: str
    runs: Mapping[tuple[int, int], float]
    """Mean over clients, by (source model, trial)."""
    domains: Mapping[str, Sequence[float]]
    """Mean over the clients of a domain, one for each run; domains that no table counts are not in it."""
    before: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """What `runs` was before the last phase; empty where there is none."""

    @property
    def mean(self) -> float:
        """Mean over runs of the mean over clients."""
        return mean(self.runs.values())

    @property
    def std(self) -> float | None:
        """Standard deviation over runs (ddof 1); None for a single run."""
        return deviation(list(self.runs.values()))


def table_rows(records: Sequence[Record], labels: Mapping[str, str], domains: Sequence[str]) -> list[Row]:
    """The table's rows from the LAST round of each run; never the best round.

    Args:
        records: lines of ``rounds.jsonl``.
        labels: display label of each method, in the order of the table.
        domains: true domain of each client, K names.
    """
    last, rounds = last_records(records), last_records(r for r in records if "phase" not in r)
    shown = _counted_domains(last, domains)
    table = []
    for name, label in labels.items():
        if not last[name]:
            continue
        runs = {run: mean(record["accuracy"]) for run, record in sorted(last[name].items())}
        adapted = {run for run, record in last[name].items() if "phase" in record}
        before = {run: mean(record["accuracy"]) for run, record in sorted(rounds[name].items()) if run in adapted}
        by_domain: dict[str, list[float]] = {domain: [] for domain in shown}
        for _, record in sorted(last[name].items()):
            for domain, values in by_domain.items():
                here = [a for a, d in zip(record["accuracy"], domains, strict=True) if d == domain]
                values.append(mean(here))
        table.append(Row(name, label, runs, by_domain, before))
    return table


def last_records(records: Iterable[Record]) -> dict[str, dict[tuple[int, int], Record]]:
    """The last of some records by method and run (source model, trial)."""
    last: dict[str, dict[tuple[int, int], Record]] = defaultdict(dict)
    for record in records:
        run = (record["source_model"], record["trial"])
        before = last[record["method"]].get(run)
        if before is None or record["round"] >= before["round"]:
            last[record["method"]][run] = record
    return last


def _counted_domains(last: Mapping[str, Mapping[tuple[int, int], Record]], domains: Sequence[str]) -> list[str]:
    """Domains of which some client is counted; all, where nobody is."""
    every = list(dict.fromkeys(domains))
    accuracies = [record["accuracy"] for runs in last.values() for record in runs.values()]
    seen = {d for found in accuracies for d, value in zip(domains, found, strict=True) if not math.isnan(value)}
    return [domain for domain in every if domain in seen] or every


def paired_differences(row: Row, other: Row) -> list[float]:
    """Differences to another method, paired by (source model, trial)."""
    return [value - other.runs[run] for run, value in row.runs.items() if run in other.runs]


def summarise(table: Sequence[Row], to: str | None = None) -> dict[str, Any]:
    """The table as plain values; accuracies in percent.

    Args:
        table: see `table_rows`.
        to: method that differences are taken to, where it was run; None: FedAvg.
    """
    found = {row.name: row for row in table}
    to = to or reference_among(found)
    methods = {}
    for row in table:
        entry: dict[str, Any] = {
            "label": row.label,
            "mean": row.mean,
            "std": row.std,
            "n": len(row.runs),
            "domains": {domain: mean(values) for domain, values in row.domains.items()},
            "domain_stds": {domain: deviation(values) for domain, values in row.domains.items()},
            "runs": [
                {"source_model": run[0], "trial": run[1], "mean": value}
                | ({"before": row.before[run]} if run in row.before else {})
                for run, value in row.runs.items()
            ],
        }
        if row.before:
            values = list(row.before.values())
            entry["before"] = {"mean": mean(values), "std": deviation(values)}
        if to in found and row.name != to:
            paired = paired_differences(row, found[to])
            entry["difference"] = {"to": to, "mean": mean(paired), "std": deviation(paired), "n": len(paired)}
        methods[row.name] = entry
    return methods
