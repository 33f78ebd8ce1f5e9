"""The HTML page: everything readable is plain text in it; a small script adds sorting and charts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from fedwca.core.dotted_keys import flatten_keys
from fedwca.results.describe_run import describe_deviation
from fedwca.results.pictures.accuracy import count_runs
from fedwca.results.pictures.final_models import Models
from fedwca.results.read_run import Run, run_notes
from fedwca.results.report.class_tables import class_tables
from fedwca.results.report.embedded_pictures import embedded_pictures
from fedwca.results.report.html_tables import escape, html_table, text_grid
from fedwca.results.report.page_data import page_data
from fedwca.results.report.results_csv import csv_address
from fedwca.results.report.text_report import summary_table, titles
from fedwca.results.report.warnings import run_warnings
from fedwca.results.results_table import ON_REQUEST
from fedwca.results.tables import MISSING

Predict = Callable[[Run], Callable[[], Models]]
"""Gives for a run a function that rebuilds its final models, see `fedwca.results.pictures.catalogue.PictureRequest`."""


def page(runs: Sequence[Run], names: Sequence[str], columns: Sequence[str] = (), predict: Predict | None = None) -> str:
    """One self-contained page that makes no network requests, and forbids them.

    Args:
        runs: the runs to report, in order.
        names: display name of each run.
        columns: names of further columns of the table; those in `ON_REQUEST` are always included.
        predict: rebuilds final models for pictures of images; None: these pictures are left out.

    Raises:
        UsageError: there is no such column.
    """
    package = files("fedwca.results.report")
    table = summary_table(runs, names, [*ON_REQUEST, *columns])
    parts = {
        "title": escape("fedwca: " + ", ".join(names)),
        "heading": escape(runs[0].title if len(runs) == 1 else f"{len(runs)} runs"),
        "about": "".join(f"<p>{escape(text)}</p>" for text in titles(runs, names)) if len(runs) > 1 else "",
        "summary": html_table(table, "summary"),
        "csv": escape(csv_address(runs, names)),
        "runs": "".join(
            _run(index, run, name, predict) for index, (run, name) in enumerate(zip(runs, names, strict=True))
        ),
        "settings": "".join(_settings(run, name, len(runs) > 1) for run, name in zip(runs, names, strict=True)),
        "style": (package / "page.css").read_text(encoding="utf-8"),
        "script": (package / "page.js").read_text(encoding="utf-8"),
        "data": embed_json(page_data(runs, names)),
    }
    return Template((package / "page.html").read_text(encoding="utf-8")).substitute(parts)


def embed_json(value: Any) -> str:
    """JSON for a script element, which no text in it can end.

    >>> "</script>" in embed_json({"a": "</script>"})
    False
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _run(index: int, run: Run, name: str, predict: Predict | None) -> str:
    """A run's part of the page; the script fills in the chart and the clients."""
    warnings = run_warnings(run)
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings) or "<li>Nothing that raises a doubt.</li>"
    note_lines = "".join(f"<p>{escape(f'{heading}: {value}')}</p>" for heading, value in run_notes(run).items())
    count = count_runs(map(run.lines_of, run.labels))
    # Not a hint, which is left out in print: the band is printed, too.
    band = f'<p class="note">Mean over clients; {describe_deviation("band and ±", count)}</p>' if count > 1 else ""
    return (
        f'<article class="run" data-run="{index}" aria-labelledby="run-{index}">'
        f'<h2 id="run-{index}">{escape(name)}</h2>{note_lines}'
        f'<h3>Accuracy over rounds</h3>{band}<div class="chart" data-part="curves"></div>'
        f'<h3>What to know</h3><ul class="cautions">{items}</ul>'
        f'<h3>Clients</h3><div data-part="clients"></div>'
        f"<h3>Classes</h3>{class_tables(run)}"
        f"<h3>Pictures</h3>{embedded_pictures(run, predict(run) if predict else None)}</article>"
    )


def _settings(run: Run, name: str, show_name: bool) -> str:
    """Configuration with origins, methods and environment, folded away."""
    values = [(key, text, run.origins.get(key, "default")) for key, text in value_texts(run.config)]
    parts = [
        (str(method["label"]), _component(part)) for method in run.methods.values() for part in method["components"]
    ]
    suffix = f" of {escape(name)}" if show_name else ""
    return (
        f"<details><summary>Configuration{suffix}</summary>{text_grid(('field', 'value', 'from'), values)}</details>"
        f"<details><summary>Methods{suffix}</summary>{text_grid(('method', 'component and fields'), parts)}</details>"
        f"<details><summary>Environment{suffix}</summary>"
        f"{text_grid(('what', 'value'), [('folder', str(run.path)), *value_texts(run.environment)])}</details>"
    )


def _component(part: dict[str, Any]) -> str:
    fields = ", ".join(f"{key} = {value}" for key, value in part.items() if key not in ("kind", "name"))
    return f"{part['kind']} {part['name']}" + (f": {fields}" if fields else "")


def value_texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Dotted keys of nested tables, each with its value as text.

    >>> list(value_texts({"a": {"b": None}, "c": [1, 2]}))
    [('a.b', '–'), ('c', '1, 2')]
    """
    for key, value in flatten_keys(values):
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield key, MISSING if value is None else text
