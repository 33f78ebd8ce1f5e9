"""Text and tables as HTML, whatever is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_html

from fedwca.core.printable import printable
from fedwca.results.tables import Cell, Table

FIRST = "mean"
"""Heading of the column that stands first among the numbers where there is little room."""


def escape(text: str) -> str:
    """Text as the page shows it, whatever is in it."""
    return escape_html(printable(text, lines=True))


def html_table(table: Table, name: str | None = None) -> str:
    """A table whose headings are buttons that sort it.

    Args:
        table: what it holds.
        name: its id on the page; None: it has none.
    """
    heads = "".join(
        f'<th scope="col" class="{"text" if index < table.heads else "number"}" aria-sort="none"'
        f'{" data-first" if column == FIRST else ""}><button type="button">{escape(column)}</button></th>'
        for index, column in enumerate(table.columns)
    )
    rows = "".join(f"<tr>{_cells(row, table.heads)}</tr>" for row in table.rows)
    own = "" if name is None else f' id="{name}"'
    inside = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
    return wide_table(inside, table.title, f'{own} class="sortable"')


def wide_table(inside: str, title: str, attributes: str = "") -> str:
    """A table that scrolls by itself where the page is narrower.

    Args:
        inside: head and body, HTML.
        title: its caption, plain text.
        attributes: of the table, HTML.
    """
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(title)}"><table{attributes}>'
        f"<caption><span>{escape(title)}</span></caption>{inside}</table></div>"
    )


def text_grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of text under headings."""
    heads = "".join(f'<th scope="col" class="text">{escape(column)}</th>' for column in columns)
    body = "".join("<tr>" + "".join(f'<td class="text">{escape(text)}</td>' for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


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
