"""Tables on a terminal, however narrow: tighter first, then in several parts, never with numbers broken in two."""

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
        grid: cells as text.
        console: its width decides the form.
        bold: column that stands out.
    """
    for part in parts(grid, console.width):
        console.print(_table(part, tight=part is not grid, bold=bold))


def parts(grid: Table, width: int) -> list[Table]:
    """The grid itself where it fits, else one with less space, else several that share the first column.

    >>> wide = Table("", ("method", "photo", "neon"), [["FedAvg", "59.5 ± 4.7", "63.0 ± 7.3"]])
    >>> [part.columns for part in parts(wide, 20)]
    [('method', 'photo'), ('method', 'neon')]
    """
    if sum(_widths(grid)) + 3 * len(grid.columns) + 1 <= width:
        return [grid]
    rows = [[cell.replace(" ± ", "±").replace(", ", ",") for cell in row[1:]] for row in grid.rows]
    tight = replace(grid, rows=[[row[0], *cells] for row, cells in zip(grid.rows, rows, strict=True)])
    first, *others = _widths(tight)
    others = [each + 2 for each in others]
    chosen: list[list[int]] = [[]]
    left = width - first
    for column, each in enumerate(others, 1):
        if chosen[-1] and each > left:
            chosen.append([])
            left = width - first
        chosen[-1].append(column)
        left -= each
    return [
        Table(
            grid.title if number == 0 else "",
            tuple(grid.columns[column] for column in (0, *columns)),
            [[row[column] for column in (0, *columns)] for row in tight.rows],
            heads=sum(column < grid.heads for column in (0, *columns)),
        )
        for number, columns in enumerate(chosen)
    ]


def _widths(grid: Table) -> list[int]:
    return [max(cell_len(printable(cell)) for cell in cells) for cells in zip(grid.columns, *grid.rows, strict=True)]


def _table(grid: Table, tight: bool, bold: str) -> TerminalTable:
    look = (
        TerminalTable(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
        if tight
        else TerminalTable()
    )
    look.title = printable(grid.title) or None
    for index, column in enumerate(grid.columns):
        style = "bold" if column == bold else ""
        # Where there is no room for a label and a number, the label goes on in the next line.
        look.add_column(
            printable(column),
            justify="right" if index else "left",
            style=style,
            no_wrap=bool(index),
            overflow="ellipsis" if index else "fold",
        )
    for row in grid.rows:
        look.add_row(*map(printable, row))
    return look


def align_heads(heads: Sequence[str], lines: Sequence[str]) -> list[str]:
    """``head  a, b, c`` a line; on a terminal, long lines are broken between names and go on below the first.

    Args:
        heads: what stands at the left.
        lines: names, separated by a comma and a space, or sentences.
    """
    left = max(map(len, heads))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    found = []
    for head, line in zip(heads, lines, strict=True):
        start = f"{head:<{left}}  "
        if width > left + 20:
            kept = textwrap.wrap(line, width - left - 2, break_long_words=False, break_on_hyphens=False)
            found.append(start + f"\n{' ' * (left + 2)}".join(kept))
        else:
            found.append(start + line)
    return found
