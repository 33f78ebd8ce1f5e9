"""The pictures of `paper_size.py`: ``python benchmarks/paper_size_picture.py``.

docs/better-and-when.png shows FedWCA minus other methods by target domain; docs/internals/forty-rounds.png shows
learning curves.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper_size_numbers import (
    MOMENTS,
    MOMENTS_PACS,
    ONE_HOT_BY_MOMENTS,
    OWN,
    PACS,
    by_target,
    finished,
    finished_with,
)
from paper_size_pieces import KINDS

from fedwca.results.pictures import style
from fedwca.results.pictures.accuracy import draw_curves

DOCS = Path(__file__).resolve().parents[1] / "docs"
KIND = next(kind for kind in KINDS if kind.name == "digits40")
DIGITS = next(kind for kind in KINDS if kind.name == "digits")
RIVALS = {
    "source_ada_bn": "Source + AdaBN",
    "fedavg": "FedAvg",
    "local": "Local",
    "one_hot": "One-hot",
    "fedscal": "FedSCAl",
}
SHOWN = (
    (DIGITS, OWN, "Digit-Five", "o", style.OWN),
    (PACS, MOMENTS, "PACS, clusters by moments", "^", style.COLOURS[1]),
)
"""Kind of pieces, method, label, marker and colour."""


def draw_by_target(file: Path) -> None:
    """Draw FedWCA minus each rival over the source model's accuracy, a point per source, source model and target."""
    figure = style.figure(14, 3.9, "FedWCA minus another method, by target domain: all images, ten rounds")
    axes = figure.subplots(1, len(RIVALS), sharey=True)
    for axis, (rival, label) in zip(axes, RIVALS.items(), strict=True):
        for kind, method, name, marker, colour in SHOWN:
            pieces = finished_with(MOMENTS_PACS, ONE_HOT_BY_MOMENTS, PACS) if kind is PACS else finished(kind)
            rival_method = ONE_HOT_BY_MOMENTS if kind is PACS and rival == "one_hot" else rival
            source_accuracy, fedwca, rival_accuracy = (
                by_target(pieces, key) for key in ("source_only", method, rival_method)
            )
            shares = [source_accuracy[target] for target in rival_accuracy]
            gains = [fedwca[target] - rival_accuracy[target] for target in rival_accuracy]
            axis.scatter(shares, gains, s=26, marker=marker, color=colour, alpha=0.7, label=name)
        axis.axhline(0, color="#666666", linewidth=1)
        axis.set(title=f"minus {label}", xlabel="the source model is right (%)", xlim=(0, 100))
        style.remove_frame(axis)
    axes[0].set_ylabel("points (above 0: FedWCA ahead)")
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, fontsize=9, frameon=False, ncol=2, loc="outside lower center")
    style.save(figure, file, dpi=100)


def draw(piece: Mapping[str, Any], file: Path) -> None:
    """Draw mean accuracy by round, one curve per method; methods that share a run have one curve."""
    methods = {name: entry for name, entry in piece["methods"].items() if entry["curve"] and "same_run_as" not in entry}
    curves = {
        name: (
            entry["label"],
            [
                {"method": name, "source_model": 0, "trial": 0, "round": index - 1, "accuracy": [value]}
                for index, value in enumerate(entry["curve"][0])
            ],
        )
        for name, entry in methods.items()
    }
    title = f"Digit-Five from {piece['source']}, all images, {KIND.settings['rounds']} rounds of 5 epochs"
    style.save(draw_curves(curves, title), file, dpi=100)


if __name__ == "__main__":
    for needed in (DIGITS, PACS, KIND):
        if not finished(needed):
            sys.exit(f"nothing of {needed.name} is measured yet: python benchmarks/paper_size.py --all")
    draw_by_target(DOCS / "better-and-when.png")
    draw(finished(KIND)[0], DOCS / "internals" / "forty-rounds.png")
