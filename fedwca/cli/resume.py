"""`fedwca resume`: continue a stopped run, to the same numbers."""

from __future__ import annotations

from typing import Annotated

import typer

from fedwca.cli.ranks import run_on_ranks
from fedwca.cli.shared_options import Json, MoreColumns, Quiet, RanksPerTrial


def command(
    run: Annotated[str, typer.Argument(help="Run folder, or its name in runs/.", show_default=False)],
    column: MoreColumns = None,
    as_json: Json = False,
    quiet: Quiet = False,
    ranks_per_trial: RanksPerTrial = None,
) -> None:
    """Continue a run that was stopped, to the same numbers as if it had not been; a finished one shows its table."""
    from fedwca.cli.console_reporter import ConsoleReporter
    from fedwca.cli.printing import print_finished
    from fedwca.results.find_runs import find_run
    from fedwca.results.results_table import check_columns
    from fedwca.runs.resuming.resume_run import resume_run

    columns = check_columns(column or ())
    reporter = ConsoleReporter(silent=as_json, quiet=quiet)
    finished = run_on_ranks(ranks_per_trial, lambda ranks: resume_run(find_run(run), reporter, ranks))
    print_finished(finished, as_json, columns)
