"""Table rows from the records of rounds: a row per method, accuracy by target domain, mean ± std over runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedwca.core.mean import mean
from fedwca.results.class_scores import macro_f1, score_classes
from fedwca.results.diverged_runs import Divergence, find_divergences, mark_divergence, whole_runs
from fedwca.results.reference_method import reference_among
from fedwca.results.shown_records import VALIDATION, Record, last_records, shown_records
from fedwca.results.statistics import deviation, list_differences, mean_difference, sample_of
from fedwca.results.trial_key import TrialKey


@dataclass(frozen=True)
class Row:
    """Results of one method over all its runs; accuracies in percent."""

    name: str
    label: str
    runs: Mapping[TrialKey, float]
    """Mean accuracy over clients by (source model, trial); without diverged runs."""
    domains: Mapping[str, Sequence[float]]
    """Mean accuracy over the clients of each domain, one value per run; without domains that no table counts."""
    before: Mapping[TrialKey, float] = field(default_factory=dict)
    """Values of `runs` before the last phase; empty if there is none."""
    validation: Mapping[TrialKey, float] = field(default_factory=dict)
    """Mean validation accuracy over training clients; empty without validation images. The best round is shown."""
    shown: Mapping[TrialKey, int] = field(default_factory=dict)
    """Number of rounds done at the shown round; empty if the last round is shown."""
    last: Mapping[TrialKey, float] = field(default_factory=dict)
    """Values of `runs` after the last round; empty if the last round is shown."""
    numbers: Mapping[str, Mapping[TrialKey, float]] = field(default_factory=dict)
    """Further numbers of the shown rounds, by name in `summarise` and by run; see `count_numbers`."""
    classes: Mapping[TrialKey, Mapping[int, float]] = field(default_factory=dict)
    """Accuracy of each class in the shown rounds, over the test images of all clients that tables count."""
    diverged: Mapping[TrialKey, Divergence] = field(default_factory=dict)
    """Diverged runs; no other field includes them."""

    @property
    def marked_label(self) -> str:
        """The label, followed by `mark`."""
        return self.label + self.mark

    @property
    def mark(self) -> str:
        """How many runs diverged, as a suffix of the label; empty if none did."""
        return mark_divergence(self.diverged.values(), len(self.runs) + len(self.diverged))

    @property
    def mean(self) -> float:
        """Mean over runs of the mean over clients."""
        return mean(self.runs.values())

    @property
    def std(self) -> float | None:
        """Standard deviation over runs (ddof 1); None for a single run."""
        return deviation(list(self.runs.values()))


def table_rows(records: Sequence[Record], labels: Mapping[str, str], domains: Sequence[str]) -> list[Row]:
    """The table's rows, from the record of each run that `shown_records` chooses.

    That is the last round; where new clients are counted and others train, it is the round that was best on the
    training clients' validation images. The choice never uses accuracies of the counted clients. A diverged run is only
    in the row's `diverged`.

    Args:
        records: lines of ``rounds.jsonl``.
        labels: display label of each method, in the order of the table.
        domains: true domain of each client, K names.
    """
    diverged, records = find_divergences(records), whole_runs(records)
    shown, last_rounds = shown_records(records), last_records(r for r in records if "phase" not in r)
    last = last_records(records)
    counted_domains = _counted_domains(last, domains)
    table = []
    for name, label in labels.items():
        if not last[name] and not diverged[name]:
            continue
        rounds = dict(sorted(shown[name].items()))
        runs = {trial: mean(record["accuracy"]) for trial, record in rounds.items()}
        before = {
            trial: mean(record["accuracy"])
            for trial, record in sorted(last_rounds[name].items())
            if "phase" in last[name][trial]
        }
        by_domain = {
            domain: [
                mean(a for a, d in zip(record["accuracy"], domains, strict=True) if d == domain)
                for record in rounds.values()
            ]
            for domain in counted_domains
        }
        selected = {
            trial: record
            for trial, record in rounds.items()
            if VALIDATION in record and not math.isnan(mean(record[VALIDATION]))
        }
        extra_fields: dict[str, Any] = {
            "validation": {trial: mean(record[VALIDATION]) for trial, record in selected.items()},
            "shown": {trial: record["round"] + 1 for trial, record in selected.items()},
            "last": {trial: mean(last[name][trial]["accuracy"]) for trial in selected},
            "numbers": _by_name({trial: count_numbers(record) for trial, record in rounds.items()}),
            "classes": {trial: class_accuracies(r) for trial, r in rounds.items() if "confusion" in r},
            "diverged": dict(sorted(diverged[name].items())),
        }
        table.append(Row(name, label, runs, by_domain, before, **extra_fields))
    return table


CLOSE = 1.02
"""Limit on ``margins`` of a record: a second neighbour at most 2 % farther than the first is nearly a tie."""


def count_numbers(record: Record) -> dict[str, float]:
    """Numbers of a round besides the mean, over the clients that tables count; those not in the record are left out.

    Returns:
        ``f1`` (macro F1 in percent, of all their test images together), ``worst`` (the lowest of their accuracies),
        ``client_std`` (the standard deviation of these, ddof 1), ``calibration_error`` (in points, as F1).

    >>> count_numbers({"accuracy": [60.0, math.nan, 80.0], "calibration_error": 6.0})
    {'worst': 60.0, 'client_std': 14.142135623730951, 'calibration_error': 6.0}
    """
    accuracies = [value for value in record["accuracy"] if not math.isnan(value)]
    numbers: dict[str, float] = {}
    if "confusion" in record:
        numbers["f1"] = macro_f1(record["confusion"])
    if accuracies:
        numbers["worst"] = min(accuracies)
    if (spread := deviation(accuracies)) is not None:
        numbers["client_std"] = spread
    if record.get("calibration_error") is not None:  # null where there was no test image
        numbers["calibration_error"] = record["calibration_error"]
    return numbers


def class_accuracies(record: Record) -> dict[int, float]:
    """Percent of each class's test images that are predicted right; classes without images are left out."""
    return {label: score.accuracy for label, score in score_classes(record["confusion"]).items() if score.images}


def _by_name(numbers: Mapping[TrialKey, Mapping[str, float]]) -> dict[str, dict[TrialKey, float]]:
    names = dict.fromkeys(name for by_name in numbers.values() for name in by_name)
    return {name: {trial: by_name[name] for trial, by_name in numbers.items() if name in by_name} for name in names}


def _counted_domains(last: Mapping[str, Mapping[TrialKey, Record]], domains: Sequence[str]) -> list[str]:
    """Domains with a counted client; all if no client is counted in any run that did not diverge."""
    accuracies = [record["accuracy"] for runs in last.values() for record in runs.values()]
    counted = {
        d for values in accuracies for d, accuracy in zip(domains, values, strict=True) if not math.isnan(accuracy)
    }
    return [domain for domain in dict.fromkeys(domains) if accuracies and (domain in counted or not counted)]


def _more(row: Row) -> list[tuple[str, Mapping[TrialKey, float]]]:
    """Name and values by run of the statistics that not every row has."""
    statistics = [("before", row.before), ("validation", row.validation), ("round", row.shown), ("last", row.last)]
    return [*statistics, *row.numbers.items()]


def mean_of_classes(row: Row) -> dict[int, float]:
    """Mean accuracy of each class over the runs that have test images of it."""
    labels = sorted({label for accuracies in row.classes.values() for label in accuracies})
    return {
        label: mean(accuracies[label] for accuracies in row.classes.values() if label in accuracies) for label in labels
    }


def run_summary(
    table: Sequence[Row],
    config: Mapping[str, Any],
    seconds: Mapping[str, float],
    total: float,
    setup: float,
    complete: bool,
) -> dict[str, Any]:
    """The content of ``summary.json``, with seconds of each method's rounds, in all, and before the first round."""
    timing = {"total_seconds": total, "setup_seconds": setup, "run_seconds": total - setup, "methods": seconds}
    return {"methods": summarise(table), "config": config, "timing": timing, "complete": complete}


def summarise(table: Sequence[Row]) -> dict[str, Any]:
    """The rows of `table_rows` as plain values by method; accuracies in percent."""
    rows_by_name = {row.name: row for row in table}
    reference = reference_among(rows_by_name)
    methods = {}
    for row in table:
        entry: dict[str, Any] = {
            "label": row.marked_label,
            "mean": row.mean,
            "std": row.std,
            "n": sample_of(list(row.runs.values())).n,
            "domains": {domain: mean(values) for domain, values in row.domains.items()},
            "domain_stds": {domain: deviation(values) for domain, values in row.domains.items()},
            "runs": [
                {**trial._asdict(), "mean": value}
                | {name: values[trial] for name, values in _more(row) if trial in values}
                for trial, value in row.runs.items()
            ],
        }
        for name, values in _more(row):
            if values:
                entry[name] = {"mean": mean(values.values()), "std": deviation(list(values.values()))}
        if row.classes:
            entry["class_accuracy"] = mean_of_classes(row)
        if row.diverged:
            entry["diverged"] = [
                {**trial._asdict(), **divergence._asdict()} for trial, divergence in row.diverged.items()
            ]
        if (
            reference in rows_by_name
            and row.name != reference
            and (differences := list_differences(row.runs, rows_by_name[reference].runs))
        ):
            entry["difference"] = {
                "to": reference,
                "mean": mean_difference(differences),
                "std": deviation(differences),
                "n": sample_of(differences).n,
            }
        methods[row.name] = entry
    return methods
