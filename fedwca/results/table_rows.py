"""From rounds to a table: a row per method, a column per target domain, mean ± std over runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedwca.core.mean import mean
from fedwca.results.class_scores import macro_f1, score_classes
from fedwca.results.diverged_runs import Divergence, ended_rounds, find_divergences, mark_divergence
from fedwca.results.reference_method import reference_among
from fedwca.results.statistics import deviation, list_differences, sample_of
from fedwca.results.trial_key import TrialKey

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One method over all its runs; accuracies in percent."""

    name: str
    label: str
    runs: Mapping[TrialKey, float]
    """Mean over clients, by (source model, trial); without runs that diverged."""
    domains: Mapping[str, Sequence[float]]
    """Mean over the clients of a domain, one for each run; domains that no table counts are not in it."""
    before: Mapping[TrialKey, float] = field(default_factory=dict)
    """What `runs` was before the last phase; empty where there is none."""
    validation: Mapping[TrialKey, float] = field(default_factory=dict)
    """Mean over the clients that train, on their validation images; empty where they have none. The round with the best
    one is shown."""
    shown: Mapping[TrialKey, int] = field(default_factory=dict)
    """How many rounds had been done then; empty where the last round is shown."""
    last: Mapping[TrialKey, float] = field(default_factory=dict)
    """What `runs` is after the last round; empty where that is shown."""
    numbers: Mapping[str, Mapping[TrialKey, float]] = field(default_factory=dict)
    """What else is known of the shown rounds, by its name in `summarise` and by run; see `count_numbers`."""
    classes: Mapping[TrialKey, Mapping[int, float]] = field(default_factory=dict)
    """Accuracy of each class in the shown rounds, over the test images of all clients that tables count."""
    diverged: Mapping[TrialKey, Divergence] = field(default_factory=dict)
    """Runs that came to no end; nothing else of the row is of them."""

    @property
    def marked_label(self) -> str:
        """The label, with how many runs diverged where some did."""
        return self.label + self.mark

    @property
    def mark(self) -> str:
        """What `marked_label` has behind the label."""
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
    """The table's rows from the last round of each run; where new clients are counted and others train, from the round
    that was best on the latter's validation images, see `shown_records`. No choice looks at who is counted. A run that
    diverged is in the row's `diverged` alone.

    Args:
        records: lines of ``rounds.jsonl``.
        labels: display label of each method, in the order of the table.
        domains: true domain of each client, K names.
    """
    diverged = find_divergences(records)
    records = [r for r in ended_rounds(records) if TrialKey.of(r) not in diverged[r["method"]]]
    found, rounds = shown_records(records), last_records(r for r in records if "phase" not in r)
    last = last_records(records)
    shown = _counted_domains(last, domains)
    table = []
    for name, label in labels.items():
        if not last[name] and not diverged[name]:
            continue
        runs = {trial: mean(record["accuracy"]) for trial, record in sorted(found[name].items())}
        adapted = {trial for trial, record in last[name].items() if "phase" in record}
        before = {trial: mean(record["accuracy"]) for trial, record in sorted(rounds[name].items()) if trial in adapted}
        by_domain: dict[str, list[float]] = {domain: [] for domain in shown}
        for _, record in sorted(found[name].items()):
            for domain, values in by_domain.items():
                here = [a for a, d in zip(record["accuracy"], domains, strict=True) if d == domain]
                values.append(mean(here))
        chosen = {trial: record for trial, record in sorted(found[name].items()) if VALIDATION in record}
        own: dict[str, Any] = {
            "validation": {trial: mean(record[VALIDATION]) for trial, record in chosen.items()},
            "shown": {trial: record["round"] + 1 for trial, record in chosen.items()},
            "last": {trial: mean(last[name][trial]["accuracy"]) for trial in chosen},
            "numbers": _by_name({trial: count_numbers(record) for trial, record in sorted(found[name].items())}),
            "classes": {trial: class_accuracies(r) for trial, r in sorted(found[name].items()) if "confusion" in r},
            "diverged": dict(sorted(diverged[name].items())),
        }
        table.append(Row(name, label, runs, by_domain, before, **own))
    return table


CLOSE = 1.02
"""Of ``margins`` in a record: a second neighbour at most 2 % farther than the first is close to a tie."""
NUMBERS = ("f1", "worst", "client_std", "calibration_error")
"""What `count_numbers` may find."""


def count_numbers(record: Record) -> dict[str, float]:
    """What a round came to beside the mean, over the clients that tables count; what it does not say is left out.

    Returns:
        ``f1`` (macro F1 in percent, of all their test images together), ``worst`` (the lowest of their accuracies),
        ``client_std`` (the standard deviation of these, ddof 1), ``calibration_error`` (in points, as F1).

    >>> count_numbers({"accuracy": [60.0, math.nan, 80.0], "calibration_error": 6.0})
    {'worst': 60.0, 'client_std': 14.142135623730951, 'calibration_error': 6.0}
    """
    accuracies = [value for value in record["accuracy"] if not math.isnan(value)]
    found: dict[str, float] = {}
    if "confusion" in record:
        found["f1"] = macro_f1(record["confusion"])
    if accuracies:
        found["worst"] = min(accuracies)
    if (spread := deviation(accuracies)) is not None:
        found["client_std"] = spread
    if record.get("calibration_error") is not None:  # null where there was no test image
        found["calibration_error"] = record["calibration_error"]
    return found


def class_accuracies(record: Record) -> dict[int, float]:
    """Percent of the test images of each class that are predicted right, by the class; none for one without images."""
    return {label: score.accuracy for label, score in score_classes(record["confusion"]).items() if score.images}


def _by_name(numbers: Mapping[TrialKey, Mapping[str, float]]) -> dict[str, dict[TrialKey, float]]:
    names = dict.fromkeys(name for own in numbers.values() for name in own)
    return {name: {trial: own[name] for trial, own in numbers.items() if name in own} for name in names}


VALIDATION = "accuracy_validation"
"""Field of a record: accuracies of clients that train, where others are counted."""


def shown_records(records: Iterable[Record]) -> dict[str, dict[TrialKey, Record]]:
    """The record that tables show, by method and run (source model, trial): the last; where there are validation images
    the one of the round with the best mean over the clients that train, of equals the later one.
    """
    records = list(records)
    found = last_records(records)
    best: dict[tuple[str, TrialKey], float] = {}
    for record in sorted((r for r in records if VALIDATION in r and r["round"] >= 0), key=lambda r: r["round"]):
        method, trial, value = record["method"], TrialKey.of(record), mean(record[VALIDATION])
        if not math.isnan(value) and value >= best.get((method, trial), -math.inf):
            best[method, trial] = value
            found[method][trial] = record
    return found


def accuracy_of_all(record: Record) -> list[float]:
    """Accuracy of each client, whether tables count it or not; on its test images, or those kept aside to measure it.

    >>> accuracy_of_all({"accuracy": [math.nan, 2.0], "accuracy_validation": [1.0, math.nan]})
    [1.0, 2.0]
    """
    others = record.get("accuracy_sources") or record.get(VALIDATION) or record["accuracy"]
    return [two if math.isnan(one) else one for one, two in zip(record["accuracy"], others, strict=True)]


def last_records(records: Iterable[Record]) -> dict[str, dict[TrialKey, Record]]:
    """The last of some records by method and run (source model, trial)."""
    last: dict[str, dict[TrialKey, Record]] = defaultdict(dict)
    for record in records:
        trial = TrialKey.of(record)
        before = last[record["method"]].get(trial)
        if before is None or record["round"] >= before["round"]:
            last[record["method"]][trial] = record
    return last


def _counted_domains(last: Mapping[str, Mapping[TrialKey, Record]], domains: Sequence[str]) -> list[str]:
    """Domains of which some client is counted; all, where nobody is."""
    every = list(dict.fromkeys(domains))
    accuracies = [record["accuracy"] for runs in last.values() for record in runs.values()]
    seen = {d for found in accuracies for d, value in zip(domains, found, strict=True) if not math.isnan(value)}
    return [domain for domain in every if domain in seen] or every


def _more(row: Row) -> list[tuple[str, Mapping[TrialKey, float]]]:
    """What a row may have beside its means, by run."""
    own = [("before", row.before), ("validation", row.validation), ("round", row.shown), ("last", row.last)]
    return [*own, *row.numbers.items()]


def mean_of_classes(row: Row) -> dict[int, float]:
    """Accuracy of each class that some run has test images of: a mean over these runs."""
    known = sorted({label for own in row.classes.values() for label in own})
    return {label: mean(own[label] for own in row.classes.values() if label in own) for label in known}


def summarise(table: Sequence[Row]) -> dict[str, Any]:
    """A table, see `table_rows`, as plain values; accuracies in percent."""
    found = {row.name: row for row in table}
    to = reference_among(found)
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
            entry["diverged"] = [{**trial._asdict(), **one._asdict()} for trial, one in row.diverged.items()]
        if to in found and row.name != to and (paired := list_differences(row.runs, found[to].runs)):
            entry["difference"] = {"to": to, "mean": mean(paired), "std": deviation(paired), "n": sample_of(paired).n}
        methods[row.name] = entry
    return methods
