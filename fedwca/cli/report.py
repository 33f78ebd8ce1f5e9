"""`fedwca report`: one page, or a table, of one or several runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedwca.cli.shared_options import MoreColumns
from fedwca.cli.terminal import say
from fedwca.errors import FedwcaError, UsageError


class ReportFormat(StrEnum):
    """File formats of a report."""

    HTML = "html"
    MD = "md"
    LATEX = "latex"


def command(
    runs: Annotated[list[str], typer.Argument(help="Run folders, or their names in runs/.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="File; default: report.html in the folder of the only run, else in this folder."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    column: MoreColumns = None,
    format_: Annotated[
        ReportFormat | None, typer.Option("--format", help="html (default), or the summary table as md or latex.")
    ] = None,
) -> None:
    """Write a report of one or several runs: a single page that needs no network, or the summary table.

    For example: fedwca report runs/first runs/second --out compare.html
    """
    from fedwca.runs.write_report import choose_form, render_report, write_report

    format_name = choose_form(out, format_.value if format_ else None)
    if open_ and format_name != "html":
        raise UsageError(f"--open shows a page in a browser; with --format {format_name} there is none")
    if out is None and format_name != "html":
        say(render_report(runs, format_name, column or ()), nl=False)
        return
    file = write_report(runs, out, format_name, column or ())
    say(str(file))
    if open_ and typer.launch(file.resolve().as_uri()) != 0:
        raise FedwcaError(f"no browser could be started; the page is in {file}")
