"""`fedwca runs`: list and show runs, their notes, differences of two runs, export and removal."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from fedwca.cli.list_runs import Order, State, describe_entry, entry_as_json, list_entries, notes_cell, print_entries
from fedwca.cli.shared_options import MoreColumns, PlainJson
from fedwca.cli.terminal import WAITING, make_console, say
from fedwca.core.printable import printable, quote_path
from fedwca.errors import UsageError

app = typer.Typer(help="Runs: list, show, tag, compare, export, remove.", invoke_without_command=True)

Name = Annotated[
    str, typer.Argument(help="Run folder, or its name in runs/; after --root, its name there.", show_default=False)
]


@app.callback()
def list_runs(
    context: typer.Context,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder that holds runs; default runs.", show_default=False)
    ] = None,
    match: Annotated[str, typer.Option("--match", help="Only runs of such a name: digits*.", show_default=False)] = "*",
    state: Annotated[State | None, typer.Option("--state", help="Only runs in this state.", show_default=False)] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Only runs with this tag; repeat for runs with all of them.", show_default=False),
    ] = None,
    sort: Annotated[Order, typer.Option("--sort", help="Sort key; the newest or best run comes last.")] = Order.TIME,
    as_json: PlainJson = False,
) -> None:
    """List the runs in a folder: method, data, accuracy, time, and whether it is done, stopped or running."""
    context.obj = root  # read by the subcommands below
    if context.invoked_subcommand is not None:
        of_list = {"--match": match != "*", "--state": state, "--tag": tag, "--sort": sort is not Order.TIME}
        if named := [name for name, value in {**of_list, "--json": as_json}.items() if value]:
            raise UsageError(f"{named[0]} before {context.invoked_subcommand} is for the list of runs; leave it out")
        return
    from fedwca.results.find_runs import ROOT, run_folders

    root = root or ROOT
    tags = set(tag or ())
    entries = [
        entry
        for entry in list_entries([folder for folder in run_folders(root) if fnmatchcase(folder.name, match)], sort)
        if state in (None, entry["state"]) and tags <= set(entry.get("tags", ()))
    ]
    if as_json:
        say(json.dumps([entry_as_json(entry) for entry in entries], indent=2))
    elif entries:
        print_entries(entries)
    elif not root.is_dir():
        say(f"No runs in {root}/: there is no such folder")
    else:
        say(f"No runs in {root}/" if match == "*" and state is None and not tags else f"No such runs in {root}/")


@app.command("show")
def show_run(context: typer.Context, run: Name, column: MoreColumns = None, as_json: PlainJson = False) -> None:
    """Show what a run was and how it was begun, every method's accuracy, and how far it came."""
    from fedwca.cli.wide_tables import draw_grid
    from fedwca.results.find_runs import find_run
    from fedwca.results.read_run import read_run, run_notes
    from fedwca.results.results_table import check_columns, requested_columns
    from fedwca.results.tables import Table as ResultsTable
    from fedwca.results.tables import mean_cell

    check_columns(column or ())
    shown_run = read_run(find_run(run, context.obj))
    records = shown_run.records
    rounds_done: dict[str, int] = {}
    for record in records:
        rounds_done[record["method"]] = rounds_done.get(record["method"], 0) + (record["round"] >= 0)
    methods = shown_run.results
    if as_json:
        start = {key: shown_run.environment.get(key) for key in ("command", "commit")}
        entry = {**entry_as_json(describe_entry(shown_run)), **start, "config": shown_run.config}
        say(json.dumps({**entry, "methods": methods, "rounds_done": rounds_done}, indent=2))
        return
    console = make_console()
    entry = describe_entry(shown_run)
    console.print(f"{shown_run.path}: {entry['data']}; {entry['state']}; begun {shown_run.time:%Y-%m-%d %H:%M}")
    for title, value in run_notes(shown_run).items():
        console.print(f"{title}: {value}", soft_wrap=True)
    extra_columns = requested_columns(column or (), shown_run.classes, methods.values())
    headings = ("mean", *(extra.heading for extra in extra_columns), "rounds")
    rows, labels = [], {row.name: row.marked_label for row in shown_run.table}
    for name, method in shown_run.methods.items():
        # The run folder may have no records of its rounds.
        planned_rounds = method["rounds"] * shown_run.count
        rounds = f"{rounds_done.get(name, 0)} of {planned_rounds}" if records or not shown_run.complete else "not kept"
        cells = [extra.cell(methods.get(name, {})) for extra in extra_columns]
        # The summary's label has a mark where runs diverged, and is there if the records are not.
        label = labels.get(name) or methods.get(name, method)["label"]
        results = methods.get(name, {})
        rows.append([str(label), mean_cell(results.get("mean"), results.get("std")), *cells, rounds])
    if methods:
        console.print(_describe_means(methods.values(), shown_run.complete), soft_wrap=True)
    draw_grid(ResultsTable("", ("method", *headings), rows), console)
    if any("finish" in method for method in shown_run.methods.values()):
        console.print("A last phase counts as one more round")
    if shown_run.state == "stopped":
        console.print(f"Continue it with: fedwca resume {quote_path(shown_run.path)}", soft_wrap=True)


def _describe_means(entries: Collection[Mapping[str, Any]], complete: bool) -> str:
    """What the column of means holds, in one line.

    Args:
        entries: results of the methods, as in ``summary.json``.
        complete: whether the run finished.
    """
    from fedwca.results.describe_run import describe_spread, shown_round

    last = "last round" if complete else "last round on record"
    round_text = shown_round(any("round" in entry for entry in entries), last)
    return f"Accuracy in percent {round_text}, {describe_spread([entry['n'] for entry in entries])}:"


@app.command("tag")
def tag_run(
    context: typer.Context,
    run: Name,
    add: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.", show_default=False)
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="Tag to take away; repeat.", show_default=False)
    ] = None,
    note: Annotated[
        str | None,
        typer.Option(
            "--note", help="Note, in place of the one there is; an empty one takes it away.", show_default=False
        ),
    ] = None,
) -> None:
    """Give a run tags or a note, or take tags away; without any, say those it has. No number of a run depends on them.

    For example: fedwca runs tag runs/first baseline night --note "as on Monday"
    """
    from fedwca.results.change_notes import change_notes
    from fedwca.results.find_runs import find_run
    from fedwca.results.read_run_files import read_notes

    path = find_run(run, context.obj)
    changes = bool(add or remove) or note is not None
    notes = change_notes(path, note and note.strip(), add or (), remove or ()) if changes else read_notes(path)
    say(f"{path}: {notes_cell(notes) or 'no tags and no note'}")


@app.command("diff")
def diff_runs(context: typer.Context, a: Name, b: Name, as_json: PlainJson = False) -> None:
    """Show in which settings two runs differ, and the accuracies of methods both have."""
    from fedwca.config.added_fields import with_added_settings
    from fedwca.results.differing_settings import describe_values, differing_settings
    from fedwca.results.find_runs import find_run
    from fedwca.results.read_run import read_run
    from fedwca.results.tables import mean_cell

    first_run, second_run = (read_run(find_run(name, context.obj)) for name in (a, b))
    try:
        settings = differing_settings(*(with_added_settings(run.about) for run in (first_run, second_run)))
    except UsageError:  # a part that is not installed here; what is stored can be compared all the same
        settings = differing_settings(first_run.about, second_run.about)
    means = [run.results for run in (first_run, second_run)]
    accuracy = {name: (means[0][name]["mean"], means[1][name]["mean"]) for name in means[0] if name in means[1]}
    if as_json:
        say(json.dumps({"settings": settings, "accuracy": accuracy}, indent=2))
        return
    heads = ["", *(printable(run.path.name) for run in (first_run, second_run))]
    table = Table(*(Column(head, overflow="fold") for head in heads))
    in_one_alone = first_run.methods.keys() ^ second_run.methods.keys()
    for key, values in settings.items():
        if key.partition(".")[0] not in in_one_alone:
            table.add_row(*map(printable, (key, *describe_values(*values))))
    for name in sorted(in_one_alone):
        table.add_row(
            printable(f"method {name}"), *("run" if name in run.methods else "" for run in (first_run, second_run))
        )
    for name, means_of_both in accuracy.items():
        table.add_row(printable(f"accuracy of {name}"), *map(mean_cell, means_of_both))
    make_console().print(table)


@app.command("export")
def export_run(
    context: typer.Context,
    run: Name,
    to: Annotated[
        str | None, typer.Option("--to", help="csv or parquet; default: what --out ends in, else csv.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; default <run>/rounds.<to>.")] = None,
) -> None:
    """Write a run's rounds as one flat table: a row per method, source model, trial, round and client."""
    from fedwca.results.find_runs import find_run
    from fedwca.results.read_run_files import read_configuration, read_records
    from fedwca.results.rounds_as_table import FORMATS, export_table, flatten_records

    run_path = find_run(run, context.obj)
    suffix = out.suffix.lower().removeprefix(".") if out else ""
    if to and to != suffix and suffix in FORMATS:
        raise UsageError(f"--to {to} and --out {out}: say different formats; leave out one of both")
    if suffix and suffix not in FORMATS and not to:
        right = ", ".join(f".{form}" for form in FORMATS)
        raise UsageError(f"--out {out}: ends in .{suffix}; right is {right}, or say --to")
    to = to or (suffix if suffix in FORMATS else "csv")
    output_path = out or run_path / f"rounds.{to}"
    configuration = read_configuration(run_path)
    table = flatten_records(read_records(run_path), configuration.get("domains", ()), configuration.get("classes", ()))
    export_table(table, to, output_path)
    say(f"wrote {output_path}")


@app.command("rm")
def remove_command(
    context: typer.Context,
    names: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Run folders, or their names.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove runs and all they hold."""
    from fedwca.results.find_runs import find_run
    from fedwca.results.lock import is_locked
    from fedwca.results.remove_run import remove_run

    paths = list({path.resolve(): path for path in (find_run(name, context.obj) for name in names)}.values())
    for path in paths:
        if is_locked(path):
            raise UsageError(f"{path}: a process is at work on this run; stop it first")
    paths_text = ", ".join(f"{path} (a link to {path.resolve()})" if path.is_symlink() else str(path) for path in paths)
    contents = "everything in it" if len(paths) == 1 else "everything in them"
    WAITING.end()
    try:
        removes = yes or typer.confirm(printable(f"Remove {paths_text} and {contents}?"))
    except typer.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            raise UsageError("nobody answers here whether to remove them; --yes does not ask") from None
        raise
    if not removes:
        say("Kept.")
        raise typer.Exit(1)
    for path in paths:
        say(f"removing {path}")
        remove_run(path)
        say(f"removed {path}")
