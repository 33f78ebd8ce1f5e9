"""A table and its output formats: plain text, HTML, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Self

from rich.cells import cell_len

from fedwca.core.mean import without_rounding
from fedwca.core.printable import printable
from fedwca.results.statistics import Difference, Sample

MISSING = "–"
"""Text of a cell whose number could not be measured."""
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": r"$-$", "–": "--", "…": r"\dots{}",
    "×": r"$\times$",
    "β": r"$\beta$", "α": r"$\alpha$", "λ": r"$\lambda$",
    "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
"""Characters that are special in LaTeX or missing from its fonts, and how they are written."""


class Cell(str):
    """The text of a table cell, with the number that it shows; a plain string is a cell without a number."""

    value: float | None
    """Sort key of the cell; None: its text."""

    def __new__(cls, text: str, value: float | None = None) -> Self:
        """Create a cell from its text and number."""
        cell = super().__new__(cls, text)
        cell.value = value
        return cell


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; the first ``heads`` columns name the row, the others hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """Sentences below the table: what n is, what ± means."""
    heads: int = 1

    def text(self) -> str:
        """Aligned columns for a terminal or a log; numbers are aligned to the right."""
        lines = [list(map(printable, row)) for row in (self.columns, *self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        aligned = ["  ".join(self._align(line, widths)) for line in lines]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join(
            [*([printable(self.title)] if self.title else []), aligned[0], rule, *aligned[1:], *self.notes]
        )

    def _align(self, line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        for column, (cell, width) in enumerate(zip(line, widths, strict=True)):
            blanks = " " * (width - cell_len(cell))  # some letters take two places
            yield cell + blanks if column < self.heads else blanks + cell

    def html(self) -> str:
        """A plain ``<table>``, for notebooks."""
        head = "".join(f"<th>{escape(printable(name))}</th>" for name in self.columns)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(printable(cell))}</td>' for cell in row)}</tr>" for row in self.rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{escape(printable(self.title))}</caption>" if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"

    def markdown(self) -> str:
        """A pipe table, with its title above if it has one, and its notes below."""
        rule = "|" + "---|" * self.heads + "--:|" * (len(self.columns) - self.heads)
        lines = [f"**{escape_markdown(self.title)}**", ""] if self.title else []
        lines += [_piped(self.columns), rule, *map(_piped, self.rows)]
        return "\n".join([*lines, *([""] if self.notes else []), *map(escape_markdown, self.notes)])

    def latex(self) -> str:
        """A ``table`` with ``booktabs`` rules; title and notes are the caption."""
        caption = " ".join([*([f"{self.title}."] if self.title else []), *self.notes])
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{escape_latex(caption)}}}",
                rf"\begin{{tabular}}{{{'l' * self.heads}{'r' * (len(self.columns) - self.heads)}}}",
                r"\toprule",
                _ampersands(self.columns),
                r"\midrule",
                *map(_ampersands, self.rows),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escape_markdown, cells)) + " |"


def _ampersands(cells: Sequence[str]) -> str:
    line = " & ".join(map(escape_latex, cells))
    # LaTeX takes a star or a bracket after the line before for an option of it.
    return ("{}" if line.startswith(("*", "[")) else "") + line + r" \\"


def escape_markdown(text: str) -> str:
    r"""Text on one line, with characters escaped that are special in Markdown tables or HTML.

    >>> print(escape_markdown("a|b <i> &amp; c & d"))
    a\|b &lt;i> &amp;amp; c & d
    """
    text = re.sub(r"&(?=#?\w+;)", "&amp;", printable(" ".join(text.split("\n"))))
    text = re.sub(r"([\\|`*\[\]]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text)
    return text.replace("<", "&lt;")


def escape_latex(text: str) -> str:
    r"""Text on one line, with characters escaped that are special in LaTeX.

    >>> print(escape_latex("80.6 ± 2.4 % of {a_b}"))
    80.6 $\pm$ 2.4 \% of \{a\_b\}
    >>> print(escape_latex("-1.4 [-2.0, +0.3] by 2026-11-28"))
    $-$1.4 [$-$2.0, +0.3] by 2026-11-28
    >>> print(escape_latex("--set λ=0.1"))
    -{}-set $\lambda$=0.1
    """
    line = re.sub(r"(?<![\w.)-])-(?=\d)", "−", printable(" ".join(text.split("\n"))))
    # Two hyphens, as of an option, would be set as one dash.
    return re.sub("(-)(?=-)|(.)", lambda found: "-{}" if found[1] else LATEX.get(found[2], found[2]), line)


def comma_separated(entries: Sequence[Mapping[str, Any]]) -> str:
    """CSV with a header from entries with the same keys; nested tables become columns ``outer_inner``, None is empty.

    Returns:
        Text without a line break at its end; empty if there are no entries.
    """
    if not entries:
        return ""
    nested: dict[str, dict[str, None]] = {}
    for entry in entries:
        for key, value in entry.items():
            if isinstance(value, Mapping):
                nested.setdefault(key, {}).update(dict.fromkeys(value))
    header = [
        name for key in entries[0] for name in ([f"{key}_{inner}" for inner in nested[key]] if key in nested else [key])
    ]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, header, extrasaction="ignore", lineterminator="\n")
    writer.writerow({name: spreadsheet_cell(name) for name in header})
    for entry in entries:
        nested_values = {f"{key}_{name}": value for key in nested for name, value in (entry[key] or {}).items()}
        writer.writerow({key: spreadsheet_cell(value) for key, value in {**entry, **nested_values}.items()})
    return buffer.getvalue().rstrip("\n")


def mean_cell(mean: float | None, std: float | None = None, digits: int = 1, sign: str = "") -> Cell:
    """A cell with a mean and its standard deviation, if given; a dash if the mean is None or NaN.

    >>> mean_cell(71.25, 1.04)
    '71.2 ± 1.0'
    >>> mean_cell(-0.04, 0.3, sign="+")
    '+0.0 ± 0.3'
    """
    if mean is None or math.isnan(mean):
        return Cell(MISSING)
    return Cell(f"{mean:{sign}z.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}"), mean)


def sample_cell(sample: Sample, digits: int = 1) -> Cell:
    """`mean_cell` of a sample."""
    return mean_cell(sample.mean, sample.std, digits)


def difference_cell(difference: Difference | None) -> Cell:
    """A cell with a mean difference and its 95 % interval, if there is one; empty if nothing was compared.

    A bound keeps its sign where it is rounded to 0: the sign tells whether the interval contains 0.
    """
    if difference is None:
        return Cell("")
    low, high = difference.low, difference.high
    bounds = ""
    if low is not None and high is not None:
        bounds = f" [{without_rounding(low):+.1f}, {without_rounding(high):+.1f}]"
    return Cell(f"{difference.mean:+z.1f}{bounds}", difference.mean)


FORMULA = ("=", "+", "-", "@")
"""First characters of a spreadsheet cell that is computed as a formula."""


def spreadsheet_cell(value: Any) -> Any:
    """A value for a CSV cell: text is made printable, and gets a leading ``'`` if it would be a formula.

    >>> spreadsheet_cell("=1+1"), spreadsheet_cell(-1.5)
    ("'=1+1", -1.5)
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip().startswith(FORMULA) else text
