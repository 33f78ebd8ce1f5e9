"""Options that several commands share, whether they make runs or not."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from fedwca._deprecated import warn_renamed
from fedwca.cli import complete
from fedwca.errors import UsageError
from fedwca.results.results_table import ON_REQUEST

T = TypeVar("T")

WHAT, HOW, RUN, KEEP = "Data and model", "Method", "Run", "Configuration and results"


class Format(StrEnum):
    """How a table is printed."""

    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


Form = Annotated[Format, typer.Option("--format", help="How tables are printed.", rich_help_panel=KEEP)]


def option(*names: str, text: str, panel: str | None, **keywords: Any) -> Any:
    """A typer option whose default is not shown; ``keywords`` are passed on to `typer.Option`."""
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **keywords)


def _more_columns(names: str) -> Any:
    return option("--column", text=f"One more in the table: {names}; repeat for more.", panel=KEEP)


NUMBERS = ", ".join(ON_REQUEST).replace("_", "-")
MoreNumbers = Annotated[list[str] | None, _more_columns(NUMBERS)]
MoreColumns = Annotated[list[str] | None, _more_columns(f"{NUMBERS}, class-accuracy")]
Keep = Annotated[
    str,
    option(
        "--keep", text="Checkpoints of each method that stay: last (default), selected, all, none or N.", panel=KEEP
    ),
]
Loggers = Annotated[
    list[str] | None,
    option(
        "--logger",
        text="Where numbers go too: tensorboard, mlflow, wandb; fields as in mlflow:uri=…; repeat for more.",
        panel=KEEP,
        autocompletion=complete.complete_names("logger"),
    ),
]
Quiet = Annotated[bool, option("--quiet", text="No progress; warnings and the table stay.", panel=KEEP)]
Json = Annotated[bool, option("--json", text="Print JSON alone, on stdout.", panel=KEEP)]


RanksPerTrial = Annotated[
    int | None,
    option(
        "--ranks-per-trial",
        text="Under torchrun: ranks that share a trial's clients; default: trials first.",
        panel=RUN,
    ),
]

# For commands whose help has no panels.
PlainJson = Annotated[bool, typer.Option("--json", help="Print JSON alone.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1; auto: a GPU where there is one.")]
OneMethod = Annotated[str | None, typer.Option("--method", help="Method; default: the composed one.")]
SourceModel = Annotated[int, typer.Option("--source-model", min=0, help="Which of several source models.")]
Trial = Annotated[int, typer.Option("--trial", min=0, help="Which of several trials.")]


def chosen_format(form: Format, as_json: bool, dry_run: bool) -> Format:
    """The format of a table, where ``--json`` is short for ``--format json``.

    Raises:
        UsageError: ``--json`` and ``--format`` contradict each other, or a dry run prints no table.
    """
    if as_json and form not in (Format.table, Format.json):
        raise UsageError(f"--json and --format {form}: leave out one of both")
    if dry_run and (as_json or form is not Format.table):
        raise UsageError(f"--dry-run prints a plan as text; leave out {'--json' if as_json else f'--format {form}'}")
    return Format.json if as_json else form


def folder(contents: str) -> Any:
    """The ``--out`` option of commands that keep many runs in a folder."""
    return typer.Option("--out", help=f"Folder of the {contents}.", rich_help_panel=KEEP)


def under_old_name(old: str, old_value: T | None, new: str, value: T, default: T) -> T:
    """The value of a renamed option, which may be given under its hidden old name.

    Raises:
        UsageError: both are given.

    Warns:
        FutureWarning: the old name was used.
    """
    if old_value is None:
        return value
    if value != default:
        raise UsageError(f"{old} is the old name of {new}; leave it out")
    warn_renamed(old, new)
    return old_value


def check_finite(value: float | None) -> float | None:
    """The value of a numeric option if it is finite; bounds alone let NaN pass.

    Raises:
        typer.BadParameter: it is not.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value
