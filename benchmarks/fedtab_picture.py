"""The pictures of docs/fedtab*.md: ``python benchmarks/fedtab_picture.py``.

docs/fedtab.png shows FedTAB minus other methods in both tests; docs/trust.png shows what `fedtab_gate.py` measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain
from fedtab_gate_tables import LEAST, NAMES, Found, decisions, measured
from fedtab_numbers import EQUAL_COMPUTE, HARM, PARTS, RIVALS
from fedtab_pieces import DIGIT_SOURCES, EMBEDDED_SOURCES, FIRST, PACS_SOURCES, SECOND, Plan
from fedtab_verdicts import gap_to, results_by_column

from fedwca.results.pictures import style

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROWS = (*RIVALS, "One-hot", "FedAvg", "Local", HARM, *EQUAL_COMPUTE, *PARTS)
"""Methods that FedTAB is compared with, from top to bottom."""
DATASETS = ("Digit-Five, rate 0.001", "Digit-Five, rate 0.003", "digits-mini", "PACS")
SOURCES = {"digits": DIGIT_SOURCES, "embedded": EMBEDDED_SOURCES, "pacs": PACS_SOURCES, "skewed": DIGIT_SOURCES}


def draw_gaps(file: Path) -> None:
    """Draw a panel for each test: FedTAB minus other methods, one mark per data set with its 95 % interval."""
    figure = style.figure(11, 5.2, "FedTAB minus another method, points (right of 0: FedTAB ahead)")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, plan, name in ((left, FIRST, "first test"), (right, SECOND, "second test, revised method")):
        draw_test(axis, plan)
        axis.set_title(name, fontsize=10)
    left.set_yticks([-index for index in range(len(ROWS))], ROWS)
    lines, names = right.get_legend_handles_labels()
    figure.legend(lines, names, fontsize=9, frameon=False, ncol=len(DATASETS), loc="outside lower center")
    style.save(figure, file, dpi=100)


def draw_test(axis: Any, plan: Plan) -> None:
    """Draw the differences of one test; a method that some piece lacks has no mark."""
    columns = results_by_column(plan)
    for index, name in enumerate(DATASETS):
        colour, marker = style.COLOURS[index + 1], style.MARKERS[index]
        axis.scatter([], [], s=32, color=colour, marker=marker, label=name)
        seeds = columns[name][1] if name in columns else None
        for row, method in enumerate(ROWS):
            gap = gap_to(seeds, method) if seeds else None
            if gap is None:
                continue
            y = -row + 0.27 - 0.18 * index
            axis.scatter(gap.mean, y, s=32, color=colour, marker=marker)
            if gap.low is not None and gap.high is not None:
                axis.plot([gap.low, gap.high], [y, y], color=colour, linewidth=1.6)
    axis.axvline(0, color="#666666", linewidth=1)
    style.remove_frame(axis)


def draw_trust(records: Sequence[Found], file: Path) -> None:
    """Draw a panel for each measured data set, at most two in a row."""
    kinds = [kind for kind in NAMES if any(piece["kind"] == kind for piece in records)]
    columns, rows = min(2, len(kinds)), -(-len(kinds) // 2)
    figure = style.figure(1 + 4.2 * columns, 0.4 + 3.9 * rows, "What the source model says, and what it gets right")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, kind in zip(panels, kinds, strict=False):
        draw_panel(panel, [piece for piece in records if piece["kind"] == kind], NAMES[kind], SOURCES[kind])
    for panel in panels[len(kinds) :]:
        panel.set_axis_off()
    style.save(figure, file, dpi=100)


def draw_panel(axis: Any, pieces: Sequence[Found], name: str, sources: Sequence[str]) -> None:
    """Draw a marker for each pair of source and target domain and each seed, and a small one for each client."""
    for index, source in enumerate(sources):
        source_pieces = [piece for piece in pieces if piece["source"] == source]
        colour, marker = style.COLOURS[index], style.MARKERS[index]
        for piece in source_pieces:
            trust, right = (mean_by_domain(piece["domains"], piece[key]) for key in ("trust", "right"))
            axis.scatter(piece["trust"], piece["right"], s=5, color=colour, alpha=0.35, linewidths=0)
            axis.scatter([trust[d] for d in right], list(right.values()), s=32, color=colour, marker=marker, alpha=0.8)
        if source_pieces:
            axis.scatter([], [], s=32, color=colour, marker=marker, label=f"from {source}")
    axis.axvline(LEAST, color="#666666", linewidth=1)
    axis.axhline(50, color="#666666", linewidth=1)
    pairs = decisions(pieces, "trust")
    wrong = sum(decision.wrong for decision in pairs)
    axis.set_title(f"{name}: wrong in {wrong} of {len(pairs)} pairs", fontsize=9)
    axis.text(LEAST + 0.01, 2, "trusted", fontsize=8, color="#666666")
    axis.text(LEAST - 0.01, 2, "not trusted", fontsize=8, color="#666666", ha="right")
    axis.set(xlim=(0, 1), ylim=(0, 100), xlabel="I of the untouched source model", ylabel="right labels (%)")
    axis.legend(fontsize=7, frameon=False, loc="upper left")
    style.remove_frame(axis)


if __name__ == "__main__":
    draw_gaps(DOCS / "fedtab.png")
    draw_trust(measured(), DOCS / "trust.png")
