"""The HTML page: what can be read stands in it as text, a small script adds sorting and charts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape as escape_html
from importlib.resources import files
from string import Template
from typing import Any

from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.printable import printable
from fedwca.results.read_run import Run, began_with
from fedwca.results.report.page_data import page_data
from fedwca.results.report.text_report import summary_table, titles
from fedwca.results.report.warnings import run_warnings
from fedwca.results.tables import MISSING, Cell, Table


def page(runs: Sequence[Run], names: Sequence[str]) -> str:
    """One self-contained page: it asks no network for anything, and forbids itself to.

    Args:
        runs: what to report, in order.
        names: what to call them.
    """
    here = files("fedwca.results.report")
    table = summary_table(runs, names)
    parts = {
        "title": escape("fedwca: " + ", ".join(names)),
        "heading": escape(runs[0].title if len(runs) == 1 else f"{len(runs)} runs"),
        "about": "".join(f"<p>{escape(text)}</p>" for text in titles(runs, names)) if len(runs) > 1 else "",
        "summary": html_table(table, "summary"),
        "runs": "".join(_run(index, run, name) for index, (run, name) in enumerate(zip(runs, names, strict=True))),
        "settings": "".join(_settings(run, name, len(runs) > 1) for run, name in zip(runs, names, strict=True)),
        "style": (here / "page.css").read_text(encoding="utf-8"),
        "script": (here / "page.js").read_text(encoding="utf-8"),
        "data": embed_json(page_data(runs, names)),
    }
    return Template((here / "page.html").read_text(encoding="utf-8")).substitute(parts)


def escape(text: str) -> str:
    """Text as the page shows it, whatever is in it."""
    return escape_html(printable(text, lines=True))


def embed_json(value: Any) -> str:
    """JSON that no text in it can end the script element of.

    >>> "</script>" in embed_json({"a": "</script>"})
    False
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def html_table(table: Table, name: str) -> str:
    """A table whose headings are buttons that sort it."""
    heads = "".join(
        f'<th scope="col" class="{"text" if index < table.heads else "number"}" aria-sort="none">'
        f'<button type="button">{escape(column)}</button></th>'
        for index, column in enumerate(table.columns)
    )
    rows = "".join(f"<tr>{_cells(row, table.heads)}</tr>" for row in table.rows)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(table.title)}"><table id="{name}" '
        f'class="sortable"><caption><span>{escape(table.title)}</span></caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cells(row: Sequence[str], heads: int) -> str:
    shown = []
    for index, cell in enumerate(row):
        value = cell.value if isinstance(cell, Cell) else None
        key = "" if value is None else f' data-value="{value!r}"'
        if index < heads:
            shown.append(f'<th scope="row" class="text"{key}>{escape(cell)}</th>')
        else:
            shown.append(f'<td class="number"{key}>{escape(cell)}</td>')
    return "".join(shown)


def _run(index: int, run: Run, name: str) -> str:
    """A run's part of the page; the script fills the chart and the clients in."""
    found = run_warnings(run)
    listed = "".join(f"<li>{escape(text)}</li>" for text in found) or "<li>Nothing that raises a doubt.</li>"
    began = "".join(f"<p>{escape(f'{what}: {said}')}</p>" for what, said in began_with(run).items())
    return (
        f'<article class="run" data-run="{index}" aria-labelledby="run-{index}">'
        f'<h2 id="run-{index}">{escape(name)}</h2>{began}'
        f'<h3>Accuracy over rounds</h3><div class="chart" data-part="curves"></div>'
        f'<h3>What to know</h3><ul class="cautions">{listed}</ul>'
        f'<h3>Clients</h3><div data-part="clients"></div></article>'
    )


def _settings(run: Run, name: str, named: bool) -> str:
    """Configuration with origins, methods and environment, folded away."""
    values = [(key, text, run.origins.get(key, "default")) for key, text in value_texts(run.config)]
    parts = [
        (str(method["label"]), _component(part)) for method in run.methods.values() for part in method["components"]
    ]
    where = f" of {escape(name)}" if named else ""
    return (
        f"<details><summary>Configuration{where}</summary>{_grid(('field', 'value', 'from'), values)}</details>"
        f"<details><summary>Methods{where}</summary>{_grid(('method', 'component and fields'), parts)}</details>"
        f"<details><summary>Environment{where}</summary>"
        f"{_grid(('what', 'value'), [('folder', str(run.path)), *value_texts(run.environment)])}</details>"
    )


def _component(part: dict[str, Any]) -> str:
    fields = ", ".join(f"{key} = {value}" for key, value in part.items() if key not in ("kind", "name"))
    return f"{part['kind']} {part['name']}" + (f": {fields}" if fields else "")


def value_texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys with their values as text.

    >>> list(value_texts({"a": {"b": None}, "c": [1, 2]}))
    [('a.b', '–'), ('c', '1, 2')]
    """
    for key, value in flatten_keys(values):
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield key, MISSING if value is None else shown


def _grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col" class="text">{escape(column)}</th>' for column in columns)
    body = "".join("<tr>" + "".join(f'<td class="text">{escape(text)}</td>' for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
