"""The rounds of a run as one flat table: a row per method, source model, trial, round and client."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.core.files import name_unwritable, write_atomically
from fedwca.errors import FedwcaError, UsageError
from fedwca.results.class_scores import name_class
from fedwca.results.table_rows import class_accuracies, count_numbers
from fedwca.results.tables import spreadsheet_cell

FORMATS = ("csv", "parquet")
BY_GROUP = ("_sizes", "_levels")
"""Suffixes of names of lists with a value per cluster or partition, which may have as many values as clients."""


def flatten_records(
    records: Sequence[Mapping[str, Any]], domains: Sequence[str] = (), classes: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Rows of the flat table.

    Values per client become columns; those in a nested table are prefixed with its name, such as ``adaptation_steps``.
    Newcomers have None where only training clients have a value. Values of the whole round, such as bytes and seconds,
    are repeated for each client under names with the prefix ``round_``, and so are numbers over all clients: F1, the
    worst client, and ``round_accuracy_of_…`` for each class. Matrices, such as weights, and lists by cluster or class
    are left out.

    Args:
        records: lines of ``rounds.jsonl``.
        domains: true domain of each client, if known.
        classes: class names, if known.
    """
    rounds = []
    for record in records:
        count = len(record["accuracy"])
        training_count = len(record.get("labels") or record.get("train_images") or record["accuracy"])
        key = {name: record[name] for name in ("method", "source_model", "trial", "round")}
        values = dict(_flatten({name: value for name, value in record.items() if name not in (*key, "schema")}))
        per_client = {name: value for name, value in values.items() if _per_client(value, (count, training_count))}
        per_round = {f"round_{name}": value for name, value in values.items() if not isinstance(value, list)}
        per_round |= {f"round_{name}": value for name, value in _counted(record, classes).items()}
        rounds.append((count, key, per_client, per_round))
    place = ("client", "domain") if domains else ("client",)
    # All columns are known before the first row is made, since rows are by far the largest part.
    columns = dict.fromkeys(name for _, *parts in rounds for name in (*parts[0], *place, *parts[1], *parts[2]))
    return [
        dict.fromkeys(columns)
        | {**key, "client": client, **({"domain": domains[client]} if domains else {})}
        | {name: value[client] for name, value in per_client.items() if client < len(value)}
        | per_round
        for count, key, per_client, per_round in rounds
        for client in range(count)
    ]


def _counted(record: Mapping[str, Any], classes: Sequence[str]) -> dict[str, float]:
    """Numbers over the clients that tables count; empty if the record has no confusion matrix."""
    if "confusion" not in record:
        return {}
    by_class = {f"accuracy_of_{name_class(label, classes)}": v for label, v in class_accuracies(record).items()}
    return {**count_numbers(record), **by_class}


def export_table(table: Sequence[Mapping[str, Any]], form: str, path: Path) -> None:
    """Write a flat table as CSV or Parquet.

    Raises:
        UsageError: the format is unknown, or it is Parquet and pyarrow is not installed.
        FedwcaError: the file cannot be written, or the table is empty.
    """
    if form not in FORMATS:
        raise UsageError(f"--to {form}: takes {' or '.join(FORMATS)}")
    if not table:
        raise FedwcaError("this run has no rounds to export")
    write = _csv if form == "csv" else _parquet
    with name_unwritable(path):
        write_atomically(path, lambda file: write(table, file))


def _csv(table: Sequence[Mapping[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(map(spreadsheet_cell, table[0]))
        writer.writerows(map(spreadsheet_cell, row.values()) for row in table)


def _parquet(table: Sequence[Mapping[str, Any]], path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError("--to parquet needs pyarrow: pip install 'fedwca[parquet]'") from None
    parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in table]), path)


def _per_client(value: Any, counts: tuple[int, ...]) -> bool:
    return isinstance(value, list) and len(value) in counts and not any(isinstance(item, list) for item in value)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values of a record and its nested tables, names joined by ``_``; lists by cluster or class are left out."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{path}_")
        # A list whose key is a client's number counts that client's predictions by class.
        elif not isinstance(value, list) or not (path.endswith(BY_GROUP) or name.isdecimal()):
            yield path, value
