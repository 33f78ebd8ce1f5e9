"""Text and tables as escaped HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_html

from fedwca.core.printable import printable
from fedwca.results.tables import Cell, Table

FIRST = "mean"
"""Heading of the column that comes first among the numbers on narrow screens."""


def escape(text: str) -> str:
    """Text in printable characters, escaped for HTML."""
    return escape_html(printable(text, lines=True))


def html_table(table: Table, name: str | None = None) -> str:
    """A table whose headings are buttons that sort it.

    Args:
        table: the table.
        name: its id on the page; None: no id.
    """
    # The last one, since a domain, whose column comes before, may have this name too.
    first = max((index for index, column in enumerate(table.columns) if column == FIRST), default=None)
    heads = "".join(
        f'<th scope="col" class="{"text" if index < table.heads else "number"}" aria-sort="none"'
        f'{" data-first" if index == first else ""}><button type="button">{escape(column)}</button></th>'
        for index, column in enumerate(table.columns)
    )
    rows = "".join(f"<tr>{_cells(row, table.heads)}</tr>" for row in table.rows)
    id_attribute = "" if name is None else f' id="{name}"'
    content = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
    return wide_table(content, table.title, f'{id_attribute} class="sortable"')


def wide_table(content: str, title: str, attributes: str) -> str:
    """A table that scrolls sideways if the page is narrower.

    Args:
        content: head and body of the table, HTML.
        title: caption, plain text.
        attributes: attributes of the ``<table>`` element, HTML.
    """
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(title)}"><table{attributes}>'
        f"<caption><span>{escape(title)}</span></caption>{content}</table></div>"
    )


def text_grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text under headings."""
    heads = "".join(f'<th scope="col" class="text">{escape(column)}</th>' for column in columns)
    body = "".join("<tr>" + "".join(f'<td class="text">{escape(text)}</td>' for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(row: Sequence[str], heads: int) -> str:
    cells = []
    for index, cell in enumerate(row):
        value = cell.value if isinstance(cell, Cell) else None
        attribute = "" if value is None else f' data-value="{value!r}"'
        if index < heads:
            cells.append(f'<th scope="row" class="text"{attribute}>{escape(cell)}</th>')
        else:
            cells.append(f'<td class="number"{attribute}>{escape(cell)}</td>')
    return "".join(cells)
