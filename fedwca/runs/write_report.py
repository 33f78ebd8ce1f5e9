"""Renders a report of runs, and writes it to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from fedwca.core.check_several import check_several
from fedwca.core.files import expand_home, name_unwritable, write_text_atomically
from fedwca.errors import UsageError
from fedwca.results.find_runs import find_run
from fedwca.results.pictures.final_models import Models
from fedwca.results.read_run import Run, read_run
from fedwca.results.report.page import page
from fedwca.results.report.text_report import document
from fedwca.results.trial_key import TrialKey
from fedwca.runs.failed_part import naming_failed_part
from fedwca.runs.final_model_predictions import lazy_predictions

Form = Literal["html", "md", "latex"]
SUFFIXES: dict[str, Form] = {".html": "html", ".htm": "html", ".md": "md", ".tex": "latex"}
FILES: dict[str, str] = {"html": "report.html", "md": "report.md", "latex": "report.tex"}
"""File of each format."""


def render_report(runs: Sequence[str | Path], form: Form = "html", columns: Sequence[str] = ()) -> str:
    """The report as a self-contained HTML page, or as a Markdown or LaTeX document.

    Args:
        runs: run folders, or their names in ``runs/``.
        form: format of the report.
        columns: names of additional table columns, as of ``fedwca report --column``.

    Raises:
        FedwcaError: a run is missing or damaged.
        UsageError: no run is named, or there is no such column or format.
    """
    runs = check_several("runs", runs)
    if form not in FILES:
        raise UsageError(f"form {form!r}: takes {', '.join(FILES)}")
    loaded = [read_run(find_run(run)) for run in runs]
    names = distinct_names([str(run) for run in runs], [run.name for run in loaded])
    if form == "html":
        return page(loaded, names, columns, _predict)
    return document(loaded, names, form == "latex", columns)


def choose_form(out: str | Path | None, form: Form | None) -> Form:
    """The format of a report in a file: ``form``, else that of the file's suffix; HTML without a suffix.

    Raises:
        UsageError: the suffix is of no format, or of another one.
    """
    suffix = Path(out).suffix.lower() if out else ""
    named = SUFFIXES.get(suffix)
    if form is None and suffix and not named:
        raise UsageError(f"{out}: ends in {suffix}; right is {', '.join(SUFFIXES)}, or name the format")
    if form and named and form != named:
        raise UsageError(f"{out} and the format {form} do not fit; leave out the format, or rename the file")
    return form or named or "html"


@naming_failed_part()
def write_report(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    form: Form | None = None,
    columns: Sequence[str] = (),
) -> Path:
    """Write a report of one or several runs; returns the file.

    Args:
        runs: run folders, or their names in ``runs/``.
        out: the file; None: ``report.html``, or its like, in the run folder if there is a single run, else in the
            working directory.
        form: format of the report; None: by the file's suffix, HTML without one.
        columns: names of additional table columns, as of ``fedwca report --column``.

    Raises:
        FedwcaError: a run is missing or damaged, or the file cannot be written.
        UsageError: no run is named, there is no such column or format, or the file's suffix is of another.
    """
    runs = check_several("runs", runs)
    form = choose_form(out, form)
    text = render_report(runs, form, columns)
    file = expand_home(out) if out else (find_run(runs[0]) if len(runs) == 1 else Path()) / FILES[form]
    with name_unwritable(f"--out {file}"):
        write_text_atomically(file, text)
    return file


def _predict(run: Run) -> Callable[[], Models]:
    """A function that returns the composed method's final models in the run's first trial; it downloads no images."""
    return lazy_predictions(run.path, None, (run.runs or [TrialKey()])[0], download=False)


def distinct_names(paths: list[str], names: list[str]) -> list[str]:
    """Names of the runs: folder names, or the paths as the user wrote them if two names are equal.

    >>> distinct_names(["a/x", "b/x"], ["x", "x"])
    ['a/x', 'b/x']
    """
    return names if len(set(names)) == len(names) else paths
