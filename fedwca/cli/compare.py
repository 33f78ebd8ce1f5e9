"""`fedwca compare`: one table of named methods over sources, with paired differences, an interval and a test."""

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
    MoreNumbers,
    Quiet,
    chosen_format,
    folder,
    option,
)
from fedwca.core.environment_variables import check_one_process
from fedwca.errors import UsageError


@run_options
def command(
    asked: RunOptions,
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help="Baselines, or compositions: fedwca:ta=0.05, 'True=fedwca/clusterer=true', wca/objective=shot.",
            autocompletion=complete.baselines,
        ),
    ],
    source: Annotated[
        list[str] | None,
        option("--source", text="Source domain; repeat for more; 'all' for each in turn.", panel=WHAT),
    ] = None,
    target: Annotated[
        list[str] | None,
        option("--target", text="Target without labels, instead; repeat for more; 'all' for each in turn.", panel=WHAT),
    ] = None,
    reference: Annotated[
        str | None,
        option("--reference", text="Method that differences are taken to; default: FedAvg if it is run.", panel=KEEP),
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", text="Print what is missing and its rough cost; run nothing.", panel=KEEP)
    ] = False,
    out: Annotated[Path, folder("run folders, one a source or target")] = Path("runs/compare"),
    column: MoreNumbers = None,
    keep: Keep = "last",
    logger: Loggers = None,
    quiet: Quiet = False,
    form: Form = Format.table,
    as_json: Json = False,
) -> None:
    """Compare methods: one table over sources, source models and trials.

    Runs that are in the --out folder already are reused. For example: fedwca compare fedavg fedwca --trials 3
    """
    check_one_process("fedwca compare")
    from fedwca.cli.console_reporter import ConsoleReporter
    from fedwca.cli.printing import check_not_all_diverged, name_saved_results, print_in
    from fedwca.reproduce.plan_jobs import announce_runs, announce_total
    from fedwca.results.results_table import ON_REQUEST, check_columns
    from fedwca.runs.compare import plan_comparison, run_comparison

    columns, layer = check_columns(column or (), tuple(ON_REQUEST)), asked.layer
    form = chosen_format(form, as_json, dry_run)
    if target:
        if source:
            raise UsageError(f"--source {source[0]} and --target {target[0]}: leave out one of both")
        if target == ["none"]:  # not a domain's name: all domains are labelled
            layer, target = {**layer, "target": "none"}, None
        else:
            layer = {**layer, "partition": layer.get("partition", "leave_one_out")}
    request = asked.request(layer=layer, keep=keep, loggers=logger or ())
    reporter = ConsoleReporter(silent=form is not Format.table, quiet=quiet and not dry_run)
    domains = source or target or []
    if dry_run:
        announce_total(
            announce_runs(plan_comparison(request, methods, domains, reference).plans, out, reporter), reporter
        )
        return
    comparison = run_comparison(request, methods, domains, reference, out, reporter)
    with name_saved_results(f"the runs are whole, they are in {out}"):
        print_in(form, comparison.table(columns), comparison.plain(), comparison.flat())
    check_not_all_diverged(
        sum(len(comparison.runs[name]) for name in comparison.trained),
        [diverged.why for name in comparison.trained for diverged in comparison.diverged[name].values()],
    )
