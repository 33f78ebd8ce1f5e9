"""A table of text, and the forms it can be printed in."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedwca.results.statistics import Difference, Sample

LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "…": r"\dots{}",
}


@dataclass(frozen=True)
class TextTable:
    """Cells as text: the first column names the row, the others hold numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """Sentences under the table: what n is, what ± means."""

    def markdown(self) -> str:
        """A pipe table with its title above and its notes below."""
        lines = [f"**{self.title}**", "", _piped(self.columns), "|---|" + "--:|" * (len(self.columns) - 1)]
        lines += [_piped(row) for row in self.rows]
        return "\n".join([*lines, "", *self.notes])

    def latex(self) -> str:
        """A ``table`` with ``booktabs`` rules; the notes are in the caption."""
        body = [" & ".join(map(escape_markdown, row)) + r" \\" for row in self.rows]
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{escape_markdown(self.title)}. {escape_markdown(' '.join(self.notes))}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                " & ".join(map(escape_markdown, self.columns)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def escape_markdown(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(escape_markdown("80.6 ± 2.4 %"))
    80.6 $\pm$ 2.4 \%
    """
    return re.sub("|".join(map(re.escape, LATEX)), lambda found: LATEX[found[0]], text)


def comma_separated(entries: Sequence[Mapping[str, Any]]) -> str:
    """Entries with the same keys as CSV with a header; nested tables as ``outer_inner``, None as nothing."""
    nested = {key: list(value) for entry in entries for key, value in entry.items() if isinstance(value, Mapping)}
    header = [
        name for key in entries[0] for name in ([f"{key}_{inner}" for inner in nested[key]] if key in nested else [key])
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        inner = {f"{key}_{name}": value for key in nested for name, value in (entry[key] or {}).items()}
        writer.writerow({**entry, **inner})
    return text.getvalue().rstrip("\n")


def format_number(found: Sample, digits: int = 1, sign: str = "") -> str:
    """A mean with its spread where there is one.

    >>> format_number(Sample(71.25, 1.04, 3))
    '71.2 ± 1.0'
    """
    if not found.n:
        return "–"
    return f"{found.mean:{sign}.{digits}f}" + ("" if found.std is None else f" ± {found.std:.{digits}f}")


def format_difference(found: Difference | None) -> str:
    """A mean difference with its 95 % interval where there is one."""
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{found.mean:+.1f}"
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
