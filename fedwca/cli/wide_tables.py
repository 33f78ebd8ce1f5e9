"""Tables for narrow terminals: first with less spacing, then in several parts, never with a number wrapped."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as TerminalTable

from fedwca.core.printable import printable
from fedwca.results.tables import Table


def draw_grid(grid: Table, console: Console, bold: str = "") -> None:
    """Print a table without its notes.

    Args:
        grid: the table; its cells are text.
        console: its width decides the layout.
        bold: name of the column printed in bold; empty for none.
    """
    for part in parts(grid, console.width):
        console.print(_table(part, tight=part is not grid, bold=bold))


def parts(grid: Table, width: int) -> list[Table]:
    """The grid itself if it fits, else one with less space in its cells, else several that repeat the first column.

    >>> wide = Table("", ("method", "photo", "neon"), [["FedAvg", "59.5 ± 4.7", "63.0 ± 7.3"]])
    >>> [part.columns for part in parts(wide, 20)]
    [('method', 'photo'), ('method', 'neon')]
    """
    if sum(_widths(grid)) + 3 * len(grid.columns) + 1 <= width:
        return [grid]
    tight_cells = [[cell.replace(" ± ", "±").replace(", ", ",") for cell in row[1:]] for row in grid.rows]
    tight = replace(grid, rows=[[row[0], *cells] for row, cells in zip(grid.rows, tight_cells, strict=True)])
    first_width, *widths = _widths(tight)
    widths = [column_width + 2 for column_width in widths]
    # A long name is wrapped, so that it does not split the table into parts of one column.
    first_width = min(first_width, max(20, width - sum(widths)))
    column_groups: list[list[int]] = [[]]
    remaining = width - first_width
    for column, column_width in enumerate(widths, 1):
        if column_groups[-1] and column_width > remaining:
            column_groups.append([])
            remaining = width - first_width
        column_groups[-1].append(column)
        remaining -= column_width
    return [
        Table(
            grid.title if number == 0 else "",
            tuple(grid.columns[column] for column in (0, *columns)),
            [[row[column] for column in (0, *columns)] for row in tight.rows],
            heads=sum(column < grid.heads for column in (0, *columns)),
        )
        for number, columns in enumerate(column_groups)
    ]


def _widths(grid: Table) -> list[int]:
    return [max(cell_len(printable(cell)) for cell in cells) for cells in zip(grid.columns, *grid.rows, strict=True)]


def _table(grid: Table, tight: bool, bold: str) -> TerminalTable:
    table = (
        TerminalTable(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
        if tight
        else TerminalTable()
    )
    table.title = printable(grid.title) or None
    for index, column in enumerate(grid.columns):
        style = "bold" if column == bold else ""
        # If a label and a number do not fit, the label is wrapped.
        table.add_column(
            printable(column),
            justify="right" if index else "left",
            style=style,
            no_wrap=bool(index),
            overflow="ellipsis" if index else "fold",
        )
    for row in grid.rows:
        table.add_row(*map(printable, row))
    return table


def align_heads(heads: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Lines ``head  a, b, c``; on a terminal, long lines are wrapped at spaces and indented below the first name.

    Args:
        heads: left column.
        lines: right column: names separated by a comma and a space, or sentences.
    """
    head_width = max(map(len, heads))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    aligned = []
    for head, line in zip(heads, lines, strict=True):
        prefix = f"{head:<{head_width}}  "
        if width > head_width + 20:
            wrapped = textwrap.wrap(line, width - head_width - 2, break_long_words=False, break_on_hyphens=False)
            aligned.append(prefix + f"\n{' ' * (head_width + 2)}".join(wrapped))
        else:
            aligned.append(prefix + line)
    return aligned
