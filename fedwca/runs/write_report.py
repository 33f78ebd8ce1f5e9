"""A report of runs as text, and as a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from fedwca.core.files import expand_home, name_unwritable, write_text_atomically
from fedwca.results.find_runs import find_run
from fedwca.results.pictures.final_models import Models
from fedwca.results.read_run import Run, read_run
from fedwca.results.report.page import page
from fedwca.results.report.text_report import document
from fedwca.results.trial_key import TrialKey
from fedwca.runs.check_several import check_several
from fedwca.runs.final_model_predictions import predictions_when_asked

Form = Literal["html", "md", "latex"]
SUFFIXES: dict[str, Form] = {".html": "html", ".htm": "html", ".md": "md", ".tex": "latex"}


def render_report(runs: Sequence[str | Path], form: Form = "html", columns: Sequence[str] = ()) -> str:
    """A page that needs no network, or the summary table alone.

    Args:
        runs: run folders, or their names in ``runs/``.
        form: what it is written as.
        columns: names of more columns of the table, as of ``fedwca report --column``.

    Raises:
        FedwcaError: a run is not there or damaged.
        UsageError: no run is named, or there is no such column.
    """
    runs = check_several("runs", runs)
    found = [read_run(find_run(run)) for run in runs]
    names = distinct_names([str(run) for run in runs], [run.name for run in found])
    if form == "html":
        return page(found, names, columns, _predict)
    return document(found, names, form == "latex", columns)


def write_report(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    form: Form | None = None,
    columns: Sequence[str] = (),
) -> Path:
    """Write a report of one or several runs; returns the file.

    Args:
        runs: run folders, or their names in ``runs/``.
        out: the file; None: ``report.html`` in the folder of the only run, else in this folder.
        form: what it is written as; None: as the file's suffix says, else a page.
        columns: names of more columns of the table, as of ``fedwca report --column``.

    Raises:
        FedwcaError: a run is not there or damaged, or the file cannot be written.
        UsageError: no run is named, or there is no such column.
    """
    runs = check_several("runs", runs)
    text = render_report(runs, form or (SUFFIXES.get(Path(out).suffix.lower(), "html") if out else "html"), columns)
    file = expand_home(out) if out else (read_run(find_run(runs[0])).path if len(runs) == 1 else Path()) / "report.html"
    with name_unwritable(f"--out {file}"):
        write_text_atomically(file, text)
    return file


def _predict(run: Run) -> Callable[[], Models]:
    """The composed method's final models in the run's first trial."""
    return predictions_when_asked(run.path, None, (run.runs or [TrialKey()])[0])


def distinct_names(given: list[str], names: list[str]) -> list[str]:
    """What to call the runs: folder names, or the paths as given where two are alike.

    >>> distinct_names(["a/x", "b/x"], ["x", "x"])
    ['a/x', 'b/x']
    """
    return names if len(set(names)) == len(names) else given
