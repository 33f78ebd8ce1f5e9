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


def draw(found: Sequence[Piece], file: Path) -> None:
    """Differences by case; over right labels; weights of own cluster and model, and density, over rounds."""
    made = style.figure(13, 8.4, "FedWCA minus One-hot, points")
    left, right = made.subfigures(1, 2, width_ratios=(1, 1.1))
    draw_cases(left.subplots(), found)
    above, below = right.subfigures(2, 1, height_ratios=(1, 2.6))
    draw_labels(above.subplots(), found)
    curves = below.subplots(len(WEIGHTS), len(NAMES), sharey="row")
    for row, (name, label) in zip(curves, WEIGHTS.items(), strict=True):
        for axis, dataset in zip(row, NAMES, strict=True):
            draw_weights(axis, found, dataset, name)
        row[0].set(ylabel=label)
    for axis, name in zip(curves[-1], NAMES.values(), strict=True):
        axis.set_xlabel(f"round ({name})")
    lines, cases = curves[0][0].get_legend_handles_labels()
    below.legend(lines, cases, fontsize=7, frameon=False, ncol=4, loc="outside upper center", columnspacing=0.8)
    style.save(made, file, dpi=100)


def draw_cases(axis: Any, found: Sequence[Piece]) -> None:
    """A row a case, a mark a data set: mean over seeds with its 95 % interval."""
    names = list(dict.fromkeys(case for dataset in NAMES for case in cases_of(found, dataset)))
    for place, dataset in enumerate(NAMES):
        for case in cases_of(found, dataset):
            own = select(found, dataset, case)
            gain = paired_difference(by_seed(own, WCA), by_seed(own, ONE_HOT))
            assert gain is not None
            y = -names.index(case) - 0.2 * place
            axis.plot(gain.mean, y, "o^"[place], color=LOOKS[dataset], markersize=6)
            if gain.low is not None and gain.high is not None:
                axis.plot([gain.low, gain.high], [y, y], color=LOOKS[dataset], linewidth=1.6)
    for place, dataset in enumerate(NAMES):
        axis.plot([], [], "o^"[place], color=LOOKS[dataset], label=NAMES[dataset])
    axis.axvline(0, color="#666666", linewidth=1)
    axis.set_yticks([-place for place in range(len(names))], names)
    axis.set_xlabel("FedWCA minus One-hot (right: FedWCA ahead)")
    axis.legend(fontsize=8, frameon=False)
    style.remove_frame(axis)


def draw_labels(axis: Any, found: Sequence[Piece]) -> None:
    """A point for each domain, source and seed with true clusters."""
    for place, dataset in enumerate(NAMES):
        own = points([piece for piece in found if piece["dataset"] == dataset])
        x, y = [right for _, right, _ in own], [gain for _, _, gain in own]
        axis.scatter(x, y, s=14, alpha=0.6, color=LOOKS[dataset], marker="o^"[place])
    axis.axhline(0, color="#666666", linewidth=1)
    axis.set(xlabel="right labels in round 1 (%), true clusters", ylabel="points")
    style.remove_frame(axis)


def draw_weights(axis: Any, found: Sequence[Piece], dataset: str, name: str) -> None:
    """Mean over seeds and clients of a data set by round, a line a case."""
    for place, case in enumerate(CURVES):
        own = select(found, dataset, case)
        means = [statistics.fmean(values) for values in zip(*(piece[name] for piece in own), strict=True)]
        axis.plot(range(2, 2 + len(means)), means, marker=style.MARKERS[place], color=style.COLOURS[place], label=case)
    style.remove_frame(axis)


if __name__ == "__main__":
    draw(finished(), FILE)
