"""`fedwca report`: one page, or a table, of one or several runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedwca.errors import FedwcaError, UsageError


class Format(StrEnum):
    """What a report is written as."""

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
    format_: Annotated[
        Format | None, typer.Option("--format", help="html (default), or the summary table as md or latex.")
    ] = None,
) -> None:
    """Write a report of one or several runs: a single page that needs no network, or the summary table.

    For example: fedwca report runs/first runs/second --out compare.html
    """
    from fedwca.data.cache import write_atomically
    from fedwca.results.report.page import page
    from fedwca.results.report.tables import document
    from fedwca.results.run import find_run, read_run

    suffixes = {".html": Format.HTML, ".htm": Format.HTML, ".md": Format.MD, ".tex": Format.LATEX}
    chosen = format_ or (suffixes.get(out.suffix.lower(), Format.HTML) if out else Format.HTML)
    if open_ and chosen is not Format.HTML:
        raise UsageError(f"--open shows a page in a browser; with --format {chosen.value} there is none")
    found = [read_run(find_run(run)) for run in runs]
    names = called(runs, [run.name for run in found])
    text = page(found, names) if chosen is Format.HTML else document(found, names, latex=chosen is Format.LATEX)
    if out is None and chosen is not Format.HTML:
        typer.echo(text, nl=False)
        return
    file = out or (found[0].path if len(found) == 1 else Path()) / "report.html"
    try:
        write_atomically(file, lambda temporary: _write(temporary, text))
    except OSError as error:
        raise FedwcaError(f"--out {file}: cannot be written ({error.strerror or error})") from None
    typer.echo(str(file))
    if open_ and typer.launch(file.resolve().as_uri()) != 0:
        raise FedwcaError(f"no browser could be started; the page is in {file}")


def called(given: list[str], names: list[str]) -> list[str]:
    """What to call the runs: folder names, or the paths as given where two are alike.

    >>> called(["a/x", "b/x"], ["x", "x"])
    ['a/x', 'b/x']
    """
    return names if len(set(names)) == len(names) else given


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
