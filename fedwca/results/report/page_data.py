"""Data of the page's charts: runs as plain values, small enough for one file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedwca.core.mean import mean
from fedwca.core.printable import printable
from fedwca.results.describe_run import describe_rounds
from fedwca.results.diverged_runs import DIVERGED
from fedwca.results.pictures.accuracy import mean_by_round
from fedwca.results.pictures.bars import describe_accuracy
from fedwca.results.pictures.style import LINES, looks
from fedwca.results.read_run import Run
from fedwca.results.shown_records import VALIDATION, Record, accuracy_of_all, shown_records
from fedwca.results.statistics import deviation
from fedwca.results.trial_key import TrialKey

MOST = 400_000
"""Number of per-client values in one page beyond which trials are left out of the client details, and rounds of the
first one, if it alone is larger; of that, at least three rounds stay."""
FIELDS = ("accuracy", "accuracy_local", "pseudo_label_accuracy", "dropped", "trust", "labels", "weights")


def page_data(runs: Sequence[Run], names: Sequence[str]) -> list[dict[str, Any]]:
    """Plain values of each run: curves of its methods, and values of its clients."""
    budget = MOST // max(1, len(runs))
    return [_of(run, name, budget) for run, name in zip(runs, names, strict=True)]


def _of(run: Run, name: str, budget: int) -> dict[str, Any]:
    styles = looks(list(run.labels))
    methods = [
        {
            "name": method,
            "label": printable(label),
            "colour": styles[method]["color"],
            "dash": LINES[styles[method]["linestyle"]],
            "first_model": run.first_model_of(method),
            "rounds": describe_rounds(run.first_model_of(method), run.lines_of(method)),
            "curve": _curve(run.lines_of(method)),
        }
        for method, label in run.labels.items()
    ]
    units: list[dict[str, Any]] = []
    every = 1
    for trial in run.runs:
        by_method = {m: _clients(run.rounds(m, trial)) for m in run.labels}
        counts = _class_counts(run, trial)
        size = _size(by_method)
        if not units and size > budget:
            every = math.ceil(size / max(1, budget))
            by_method = {m: _clients(run.rounds(m, trial), every) for m in run.labels}
        budget -= size + _size(counts)
        if units and budget < 0:
            break
        units.append({**trial._asdict(), "methods": by_method, "class_counts": counts})
    return {
        "name": printable(name),
        "first_model": run.first_models,
        "rounds": describe_rounds(run.first_models, run.lines),
        "accuracy": describe_accuracy(run.results)[1],
        "methods": methods,
        "domains": [*map(printable, run.domains)],
        "classes": [printable(name) for name in run.about.get("classes", ())],
        "units": units,
        "all": len(run.runs),
        "every": every,
    }


def _curve(records: list[Record]) -> list[list[float | None]]:
    """Points [rounds done, mean, standard deviation] of the accuracy over runs."""
    # Not rounded, so that the page writes the same digits as the table.
    curve: list[list[float | None]] = [
        [number, mean(values), deviation(values)] for number, values in mean_by_round(records, "accuracy").items()
    ]
    # A single point is drawn as a method that never trains, so a diverged first round adds an empty second point.
    return [*curve, [1, None, None]] if len(curve) == 1 and any(DIVERGED in record for record in records) else curve


def _clients(all_records: list[Record], every: int = 1) -> dict[str, Any]:
    """One method in one run: numbers of rounds done, and each field as a list per round of values per client.

    Args:
        all_records: of the method.
        every: which rounds are taken: each of so many, the one that tables show, and the last.
    """
    shown = [record for runs in shown_records(all_records).values() for record in runs.values()][:1]
    once = [record for record in all_records if "trust" in record]  # in round 0, or in the last phase
    places = {*range(0, len(all_records), every), *map(all_records.index, [*shown, *once, *all_records[-1:]])}
    records = [all_records[place] for place in sorted(places)]
    return {
        "rounds": [record["round"] + 1 for record in records],
        **{field: [_short(record.get(field)) for record in records] for field in FIELDS},
        # Shares that are shown as percent.
        "agreement": [_short(record.get("agreement"), 6) for record in records],
        "accuracy": [_short(accuracy_of_all(record)) for record in records],
        "on_validation": _clients_on_validation(records),
        "shown": records.index(shown[0]) if shown else -1,
    }


def _clients_on_validation(records: list[Record]) -> list[int]:
    """Clients whose accuracy is on validation images: those that train, where other clients are counted."""
    # Taken from the first record, since a diverged round has no accuracies.
    measured = records[0].get(VALIDATION, ()) if records else ()
    return [client for client, value in enumerate(measured) if not math.isnan(value)]


def _class_counts(run: Run, trial: TrialKey) -> list[list[int]] | None:
    """Training images of each class at each client; None if the run does not record them."""
    candidates = (record.get("class_counts") for method in run.labels for record in run.rounds(method, trial)[:1])
    return next((counts for counts in candidates if counts), None)


def _short(value: Any, digits: int = 4) -> Any:
    """Numbers with more digits than are shown, since the page rounds them once more; non-finite ones become None."""
    if isinstance(value, list | tuple):
        return [_short(item, digits) for item in value]
    if isinstance(value, float):
        return round(value, digits) if math.isfinite(value) else None
    return value


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list) else 1
