"""The picture of `fedtab_gate.py`, docs/trust.png: ``python benchmarks/fedtab_picture.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain
from fedtab_gate_tables import LEAST, NAMES, Found, decisions, measured
from fedtab_pieces import DIGIT_SOURCES, EMBEDDED_SOURCES, PACS_SOURCES

from fedwca.results.pictures import style

FILE = Path(__file__).resolve().parents[1] / "docs" / "trust.png"
SOURCES = {"digits": DIGIT_SOURCES, "embedded": EMBEDDED_SOURCES, "pacs": PACS_SOURCES, "skewed": DIGIT_SOURCES}


def draw(records: Sequence[Found], file: Path) -> None:
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
    draw(measured(), FILE)
