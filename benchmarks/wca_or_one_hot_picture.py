"""The picture of `wca_or_one_hot.py`, docs/wca-or-one-hot.png: ``python benchmarks/wca_or_one_hot_picture.py``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wca_or_one_hot_tables import NAMES, ONE_HOT, WCA, Piece, by_seed, cases_of, finished, points, select

from fedwca.results.pictures import style
from fedwca.results.statistics import paired_difference

FILE = Path(__file__).resolve().parents[1] / "docs" / "wca-or-one-hot.png"
CURVES = ("true clusters", "two domains merged", "domains split", "all shuffled")
WEIGHTS = {
    "alpha_own": "α, own cluster",
    "beta_own": "β, own model",
    "density_lead": "density, own\nminus mixed (nats)",
}
LOOKS = dict(zip(NAMES, (style.OWN, style.COLOURS[1]), strict=True))


def draw(pieces: Sequence[Piece], file: Path) -> None:
    """Draw FedWCA minus One-hot by case and over right labels, and mixing weights and densities over rounds."""
    figure = style.figure(13, 8.4, "FedWCA minus One-hot, points")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    draw_cases(left.subplots(), pieces)
    top, bottom = right.subfigures(2, 1, height_ratios=(1, 2.6))
    draw_labels(top.subplots(), pieces)
    curves = bottom.subplots(len(WEIGHTS), len(NAMES), sharey="row")
    for row, (name, label) in zip(curves, WEIGHTS.items(), strict=True):
        for axis, dataset in zip(row, NAMES, strict=True):
            draw_weights(axis, pieces, dataset, name)
        row[0].set(ylabel=label)
    for axis, name in zip(curves[-1], NAMES.values(), strict=True):
        axis.set_xlabel(f"round ({name})")
    lines, cases = curves[0][0].get_legend_handles_labels()
    bottom.legend(lines, cases, fontsize=7, frameon=False, ncol=4, loc="outside upper center", columnspacing=0.8)
    style.save(figure, file, dpi=100)


def draw_cases(axis: Any, pieces: Sequence[Piece]) -> None:
    """Draw one row per case, one mark per data set: mean over seeds with its 95 % interval."""
    names = list(dict.fromkeys(case for dataset in NAMES for case in cases_of(pieces, dataset)))
    for index, dataset in enumerate(NAMES):
        for case in cases_of(pieces, dataset):
            case_pieces = select(pieces, dataset, case)
            gain = paired_difference(by_seed(case_pieces, WCA), by_seed(case_pieces, ONE_HOT))
            assert gain is not None
            y = -names.index(case) - 0.2 * index
            axis.plot(gain.mean, y, "o^"[index], color=LOOKS[dataset], markersize=6)
            if gain.low is not None and gain.high is not None:
                axis.plot([gain.low, gain.high], [y, y], color=LOOKS[dataset], linewidth=1.6)
    for index, dataset in enumerate(NAMES):
        axis.plot([], [], "o^"[index], color=LOOKS[dataset], label=NAMES[dataset])
    axis.axvline(0, color="#666666", linewidth=1)
    axis.set_yticks([-index for index in range(len(names))], names)
    axis.set_xlabel("FedWCA minus One-hot (right: FedWCA ahead)")
    axis.legend(fontsize=8, frameon=False)
    style.remove_frame(axis)


def draw_labels(axis: Any, pieces: Sequence[Piece]) -> None:
    """Draw one point per domain, source and seed with true clusters."""
    for index, dataset in enumerate(NAMES):
        values = points([piece for piece in pieces if piece["dataset"] == dataset])
        x, y = [right for _, right, _ in values], [gain for _, _, gain in values]
        axis.scatter(x, y, s=14, alpha=0.6, color=LOOKS[dataset], marker="o^"[index])
    axis.axhline(0, color="#666666", linewidth=1)
    axis.set(xlabel="right labels in round 1 (%), true clusters", ylabel="points")
    style.remove_frame(axis)


def draw_weights(axis: Any, pieces: Sequence[Piece], dataset: str, name: str) -> None:
    """Draw the mean over seeds and clients of a data set by round, one line per case."""
    for index, case in enumerate(CURVES):
        case_pieces = select(pieces, dataset, case)
        means = [statistics.fmean(values) for values in zip(*(piece[name] for piece in case_pieces), strict=True)]
        axis.plot(range(2, 2 + len(means)), means, marker=style.MARKERS[index], color=style.COLOURS[index], label=case)
    style.remove_frame(axis)


if __name__ == "__main__":
    draw(finished(), FILE)
