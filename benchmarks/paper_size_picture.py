"""The picture of forty rounds, docs/internals/forty-rounds.png: ``python benchmarks/paper_size_picture.py``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper_size_pieces import KINDS
from paper_size_tables import finished

from fedwca.results.pictures import style
from fedwca.results.pictures.accuracy import draw_curves

FILE = Path(__file__).resolve().parents[1] / "docs" / "internals" / "forty-rounds.png"
KIND = next(kind for kind in KINDS if kind.name == "digits40")


def draw(piece: Mapping[str, Any], file: Path) -> None:
    """Mean accuracy by round, a curve a method; where several are one run, the first."""
    own = {name: entry for name, entry in piece["methods"].items() if entry["curve"] and "same_run_as" not in entry}
    curves = {
        entry["label"]: [{"round": place - 1, "accuracy": [value]} for place, value in enumerate(entry["curve"][0])]
        for entry in own.values()
    }
    title = f"Digit-Five from {piece['source']}, all images, {KIND.settings['rounds']} rounds of 5 epochs"
    style.save(draw_curves(curves, title), file, dpi=100)


if __name__ == "__main__":
    found = finished(KIND)
    if not found:
        sys.exit("no piece of forty rounds is measured yet: python benchmarks/paper_size.py digits40-synth-20")
    draw(found[0], FILE)
