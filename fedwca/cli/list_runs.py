"""The list that `fedwca runs` prints: an entry for each run, sorted, and a table of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Column, Table

from fedwca.cli.terminal import make_console, say
from fedwca.core.printable import printable
from fedwca.errors import FedwcaError

if TYPE_CHECKING:
    from fedwca.results.read_run import Run

Entry = dict[str, Any]


class State(StrEnum):
    """State of a run."""

    DONE = "done"
    STOPPED = "stopped"
    RUNNING = "running"
    DAMAGED = "damaged"


class Order(StrEnum):
    """Sort keys of the list of runs."""

    TIME = "time"
    NAME = "name"
    ACCURACY = "accuracy"


ORDERS: dict[Order, Callable[[Entry], Any]] = {
    Order.TIME: lambda entry: entry["time"],
    Order.NAME: lambda entry: entry["run"],
    Order.ACCURACY: lambda entry: -1.0 if entry["accuracy"] is None else entry["accuracy"],
}


def list_entries(folders: Sequence[Path], order: Order) -> list[Entry]:
    """Entries of runs: damaged ones, of which a warning is printed, first, then the others in this order."""
    from fedwca.results.read_run import read_run

    entries, damaged = [], []
    for folder in folders:
        try:
            entries.append(describe_entry(read_run(folder)))
        except FedwcaError as error:  # one damaged run does not hide the others
            damaged.append({"run": folder.name, "path": str(folder), "state": State.DAMAGED, "problem": str(error)})
            say(f"Warning: {error}", err=True)
    return [*damaged, *sorted(entries, key=ORDERS[order])]


def describe_entry(run: Run) -> Entry:
    """The entry of a run.

    Raises:
        FedwcaError: a file of it is damaged.
    """
    from fedwca.results.describe_run import data_and_domain

    config, name = run.config, run.dataset_name
    return {
        "run": run.path.name,
        "path": str(run.path),
        "method": run.methods[run.composed]["label"],
        "data": data_and_domain(config, name) if config.get("source") or config.get("target") else name,
        "accuracy": run.accuracy,
        "time": run.time,
        "state": run.state,
        **run.notes,
    }


def entry_as_json(entry: Entry) -> Entry:
    """The entry with its time as text."""
    return {key: value.isoformat(timespec="seconds") if key == "time" else value for key, value in entry.items()}


def notes_cell(entry: Mapping[str, Any]) -> str:
    """Tags and note of a run as the text of a table cell.

    >>> notes_cell({"tags": ["night", "lr"], "note": "as on Monday"})
    'night, lr: as on Monday'
    """
    return ": ".join(filter(None, (", ".join(entry.get("tags", ())), entry.get("note", ""))))


def print_entries(entries: Sequence[Entry]) -> None:
    """Print the entries as a table, which is plainer on a narrow terminal."""
    console = make_console()
    narrow = console.width < 110
    has_notes = any(map(notes_cell, entries))
    table = Table(
        # A name is meant to be copied, so it is wrapped only if it would leave the other columns no room.
        Column("run", overflow="fold", no_wrap=max(len(entry["run"]) for entry in entries) <= 40),
        Column("method", overflow="fold"),
        Column("data", overflow="fold"),
        Column("accuracy", justify="right", no_wrap=True),
        Column("time", overflow="fold"),
        Column("state", no_wrap=True),
        *(["notes"] if has_notes else []),
        box=box.SIMPLE_HEAD if narrow else box.HEAVY_HEAD,
        padding=(0, 0, 0, 1) if narrow else (0, 1),
        pad_edge=not narrow,
        show_edge=not narrow,
    )
    for entry in entries:
        table.add_row(*map(printable, _cells(entry, has_notes)))
    console.print(table)


def _cells(entry: Entry, has_notes: bool) -> Iterator[str]:
    """The cells of an entry's row."""
    from fedwca.results.tables import MISSING, mean_cell

    yield entry["run"]
    yield from (entry.get(key, MISSING) for key in ("method", "data"))
    yield mean_cell(entry.get("accuracy"))
    yield f"{entry['time']:%Y-%m-%d %H:%M}" if "time" in entry else MISSING
    yield entry["state"]
    if has_notes:
        yield notes_cell(entry)
