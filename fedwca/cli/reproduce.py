"""`fedwca reproduce`: a published table or figure, run as far as it is missing, beside the printed numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedwca.cli import complete
from fedwca.cli.options import RunOptions, run_options
from fedwca.cli.shared_options import (
    KEEP,
    WHAT,
    Form,
    Format,
    Json,
    Keep,
    Loggers,
    Quiet,
    chosen_format,
    folder,
    option,
)
from fedwca.cli.terminal import say
from fedwca.core.environment_variables import check_one_process


@run_options
def command(
    asked: RunOptions,
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="table2 to table6, table10 to table14, figure4 to figure6; of several labelled sources sfda-table1 to "
            "sfda-table4 and sfda-parts; of new clients upfl-table1, upfl-table2 and upfl-figure3 to upfl-figure5.",
            autocompletion=complete.reproductions,
        ),
    ],
    dataset: Annotated[
        list[str] | None, option("--dataset", text="Data set; repeat for more; default: the paper's.", panel=WHAT)
    ] = None,
    source: Annotated[
        list[str] | None, option("--source", text="Source domain; repeat for more; default: the paper's.", panel=WHAT)
    ] = None,
    target: Annotated[
        list[str] | None, option("--target", text="Domain without labels; repeat for more; default: all.", panel=WHAT)
    ] = None,
    row: Annotated[
        list[str] | None, option("--row", text="Row of the table; repeat for more; default: all.", panel=WHAT)
    ] = None,
    preset: Annotated[
        str | None, option("--preset", text="Values below everything else; default: the table's.", panel=KEEP)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer images, rounds and runs; not comparable with the printed numbers.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its rough cost, run nothing.")] = False,
    out: Annotated[Path, folder("run folders and figures")] = Path("runs/reproduce"),
    keep: Keep = "last",
    logger: Loggers = None,
    quiet: Quiet = False,
    form: Form = Format.table,
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of a paper: ours, the published numbers, the difference.

    Runs in the --out folder are reused, so a stopped reproduction goes on. For example:
    fedwca reproduce table2 --quick --dataset digit-five --data DATA --source mnist
    """
    check_one_process("fedwca reproduce")
    from fedwca.cli.console_reporter import ConsoleReporter
    from fedwca.cli.printing import check_not_all_diverged, name_saved_results, print_in
    from fedwca.core.dotted_keys import flatten_keys
    from fedwca.errors import UsageError
    from fedwca.reproduce.communications_table import message_table
    from fedwca.reproduce.definitions import definition
    from fedwca.reproduce.plan_jobs import ReproductionRequest, announce_jobs, domains_named, plan_jobs
    from fedwca.reproduce.run_jobs import run_job

    table_definition, form = definition(table).chosen(row or []), chosen_format(form, as_json, dry_run)
    if table_definition.messages is not None:
        options = {"dataset": dataset, "source": source, "target": target, "preset": preset, "quick": quick}
        options |= {"keep": keep != "last", "logger": logger, "quiet": quiet, "config": asked.file is not None}
        idle_options = [f"--{name}" for name, value in options.items() if value]
        idle_options += [key for key, _ in (*flatten_keys(asked.layer), *asked.pairs)]
        if idle_options:
            raise UsageError(
                f"{table}: nothing is run for this table, so {idle_options[0]} has no effect; leave it out"
            )
        grid, entries = message_table(table, table_definition)
        print_in(form, grid, {"title": grid.title, "values": entries}, entries)
        return
    reporter = ConsoleReporter(silent=form is not Format.table, quiet=quiet and not dry_run)
    preset = preset or table_definition.preset
    request = asked.request(preset=preset, keep=keep, loggers=logger or ())
    domains = domains_named(table_definition.domain_role, {"source": source or [], "target": target or []})
    jobs = plan_jobs(
        ReproductionRequest(table, table_definition, request, dataset or [], domains, quick, planning=dry_run)
    )
    announce_jobs(jobs, out, reporter)
    if dry_run:
        return
    rows = []
    for job in jobs:
        result = run_job(job, out, reporter)
        rows += result.rows
        with name_saved_results(f"the runs so far are whole, they are in {out}"):
            for figure_path in result.figures:
                say(f"{job.title}: {figure_path}", err=form is not Format.table)
            print_in(form, result.grid, {"title": job.title, "values": result.values}, result.values)
    reasons = [diverged.why for row in rows for diverged in row.diverged.values()]
    check_not_all_diverged(sum(len(row.runs) for row in rows), reasons)
