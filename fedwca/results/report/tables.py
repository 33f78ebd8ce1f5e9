"""The summary tables of runs as plain cells, and as Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedwca.results.reading import Run


@dataclass(frozen=True)
class Cell:
    """One place of a table."""

    text: str
    value: float | None = None
    """What it is sorted by; None: its text."""


@dataclass(frozen=True)
class Table:
    """A headed table; its first ``heads`` columns are text, the others numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    heads: int


def summary(runs: Sequence[Run], names: Sequence[str]) -> Table:
    """A row for each run and method: accuracy by target domain and their mean, difference to FedAvg, seconds.

    Args:
        runs: in order.
        names: what to call them; left out of the table where there is one.
    """
    several = len(runs) > 1
    domains = list(dict.fromkeys(d for run in runs for entry in run.summary.values() for d in entry["domains"]))
    compared = any("difference" in entry for run in runs for entry in run.summary.values())
    head = [*(["run"] if several else []), "method"]
    columns = [*head, *domains, "mean", *(["to FedAvg"] if compared else []), "runs", "seconds"]
    rows = []
    for run, called in zip(runs, names, strict=True):
        for name, entry in run.summary.items():
            cells = [Cell(called)] if several else []
            cells.append(Cell(str(entry["label"])))
            cells += [number(entry["domains"].get(d), entry["domain_stds"].get(d)) for d in domains]
            cells.append(number(entry["mean"], entry["std"]))
            if compared:
                difference = entry.get("difference") or {}
                cells.append(number(difference.get("mean"), difference.get("std"), "+"))
            seconds = run.timing.get("methods", {}).get(name)
            cells += [Cell(str(entry["n"]), entry["n"]), Cell("–" if seconds is None else f"{seconds:.0f}", seconds)]
            rows.append(cells)
    repeated = any(entry["n"] > 1 for run in runs for entry in run.summary.values())
    spread = "mean ± standard deviation (ddof 1) over runs" if repeated else "one run, so no spread"
    return Table(f"Test accuracy in percent after the last round, {spread}", columns, rows, len(head))


def number(value: float | None, std: float | None, sign: str = "") -> Cell:
    """A mean with its spread, where there is one."""
    if value is None:
        return Cell("–")
    return Cell(f"{value:{sign}.1f}" + ("" if std is None else f" ± {std:.1f}"), value)


def markdown(table: Table) -> str:
    """The table as Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(plain, cells)) + " |"

    rule = "|" + "---|" * table.heads + "--:|" * (len(table.columns) - table.heads)
    body = [line([cell.text for cell in row]) for row in table.rows]
    return "\n".join([line(table.columns), rule, *body, "", table.caption + ".", ""])


def plain(text: str) -> str:
    """Text with what a Markdown table or HTML would take for its own written out."""
    for letter, safe in (("\\", "\\\\"), ("|", "\\|"), ("&", "&amp;"), ("<", "&lt;")):
        text = text.replace(letter, safe)
    return text


def latex(table: Table) -> str:
    """The table as LaTeX with booktabs."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(tex(cell) for cell in cells) + r" \\"

    layout = "l" * table.heads + "r" * (len(table.columns) - table.heads)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{tex(table.caption)}.}}", rf"\begin{{tabular}}{{{layout}}}"]
    lines += [r"\toprule", line(table.columns), r"\midrule", *(line([c.text for c in row]) for row in table.rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "β": r"$\beta$", "α": r"$\alpha$",
}  # fmt: skip


def tex(text: str) -> str:
    """Text with what LaTeX would take for its own written out.

    >>> tex("50 % & more") == chr(92).join(["50 ", "% ", "& more"])
    True
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def document(runs: Sequence[Run], names: Sequence[str], latex_: bool = False) -> str:
    """The summary table under a line for each run, as Markdown or LaTeX."""
    if latex_:
        about = "".join(f"% {' '.join(text.split())}\n" for text in titles(runs, names))
        return about + "\n" + latex(summary(runs, names))
    about = "".join(plain(text) + "\n\n" for text in titles(runs, names))
    return about + markdown(summary(runs, names))


def titles(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """What was run, a line a run."""
    return [run.title if len(runs) == 1 else f"{name}: {run.title}" for run, name in zip(runs, names, strict=True)]
