"""The picture of `fedtab.py`, docs/trust.png: ``python benchmarks/fedtab_picture.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtab_pieces import DIGIT_SOURCES, EMBEDDED_SOURCES, PACS_SOURCES
from fedtab_tables import Found, by_domain, every_piece, gate_errors

from fedwca.results.pictures import style

FILE = Path(__file__).resolve().parents[1] / "docs" / "trust.png"
KINDS = {
    "digits": ("Digit-Five", DIGIT_SOURCES),
    "embedded": ("digits-mini", EMBEDDED_SOURCES),
    "pacs": ("PACS", PACS_SOURCES),
}
LEAST = 0.5
"""I at which a client is trusted."""


def draw(found: Sequence[Found], file: Path) -> None:
    """A panel for each data set there is; skewed clients are left out, whose I is bounded by their classes."""
    shown = [kind for kind in KINDS if any(piece["kind"] == kind for piece in found)]
    made = style.figure(1 + 4.2 * len(shown), 4.2, "What the source model says, and what it gets right")
    for axis, kind in zip(made.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        # I and right labels are the source model's: no rate of later training changes them.
        pieces = {(p["source"], p["seed"]): p for p in found if p["kind"] == kind}
        draw_panel(axis, list(pieces.values()), *KINDS[kind])
    style.save(made, file, dpi=100)


def draw_panel(axis: Any, pieces: Sequence[Found], name: str, sources: Sequence[str]) -> None:
    """A mark for each pair of source and target domain and seed, a small one for each client."""
    for place, source in enumerate(sources):
        own = [piece for piece in pieces if piece["source"] == source]
        colour, marker = style.COLOURS[place], style.MARKERS[place]
        for piece in own:
            trust, right = by_domain(piece, piece["trust"]), by_domain(piece, piece["right"])
            axis.scatter(piece["trust"], piece["right"], s=5, color=colour, alpha=0.35, linewidths=0)
            axis.scatter([trust[d] for d in right], list(right.values()), s=32, color=colour, marker=marker, alpha=0.8)
        if own:
            axis.scatter([], [], s=32, color=colour, marker=marker, label=f"from {source}")
    axis.axvline(LEAST, color="#666666", linewidth=1)
    axis.axhline(50, color="#666666", linewidth=1)
    wrong, pairs, _ = gate_errors(pieces)
    axis.set_title(f"{name}: wrong in {wrong} of {pairs} pairs", fontsize=9)
    axis.text(LEAST + 0.01, 2, "trusted", fontsize=8, color="#666666")
    axis.text(LEAST - 0.01, 2, "not trusted", fontsize=8, color="#666666", ha="right")
    axis.set(xlim=(0, 1), ylim=(0, 100), xlabel="I of the untouched source model", ylabel="right labels (%)")
    axis.legend(fontsize=7, frameon=False, loc="upper left")
    style.remove_frame(axis)


if __name__ == "__main__":
    draw(every_piece(), FILE)
