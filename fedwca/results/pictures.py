"""Pictures of a run, in one style: colour-blind-safe, titled, with units."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.data.cache import write_atomically
from fedwca.data.metrics import mean
from fedwca.results.summary import Row, deviation

# Okabe and Ito's palette, ordered so that neighbours differ in lightness too.
COLOURS = ("#999999", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#F0E442", "#000000")
OWN = "#0072B2"


def overview(records: Sequence[Mapping[str, Any]], table: Sequence[Row], path: Path, title: str) -> None:
    """Accuracy over rounds, and accuracy by target domain, side by side in one PNG.

    Args:
        records: lines of ``rounds.jsonl``.
        table: rows to draw; the last one is the composed method and gets the strong colour.
        path: PNG to write.
        title: what was run.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.6), layout="constrained")
    FigureCanvasAgg(figure)  # a canvas of its own: no window, no global state of pyplot
    over_rounds, by_domain = figure.subplots(1, 2, width_ratios=(1, 1.25))
    colours = {row.name: COLOURS[index % len(COLOURS)] for index, row in enumerate(table[:-1])}
    colours[table[-1].name] = OWN
    _curves(over_rounds, records, table, colours)
    _bars(by_domain, table, colours)
    figure.suptitle(title)
    write_atomically(path, lambda file: figure.savefig(file, dpi=120, format="png"))


def _curves(axis: Any, records: Sequence[Mapping[str, Any]], table: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Mean over runs by round, with a band of one standard deviation where there are several runs."""
    for row in table:
        values: dict[int, list[float]] = defaultdict(list)
        for record in records:
            if record["method"] == row.name:
                values[record["round"] + 1].append(mean(record["accuracy"]))
        rounds = sorted(values)
        middle = [statistics.fmean(values[r]) for r in rounds]
        strong = row is table[-1]
        style = {"color": colours[row.name], "label": row.label, "linewidth": 2.6 if strong else 1.6}
        if len(rounds) == 1:
            axis.axhline(middle[0], linestyle="--", **style)
            continue
        axis.plot(rounds, middle, marker="o", markersize=3, **style)
        spread = [deviation(values[r]) or 0.0 for r in rounds]
        if any(spread):
            low, high = zip(*((m - s, m + s) for m, s in zip(middle, spread, strict=True)), strict=True)
            axis.fill_between(rounds, low, high, color=colours[row.name], alpha=0.15, linewidth=0)
    axis.set(xlabel="rounds", ylabel="accuracy, mean over clients (%)", title="While it learns")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def _bars(axis: Any, table: Sequence[Row], colours: Mapping[str, str]) -> None:
    """One group a target domain, one bar a method."""
    domains = list(table[0].domains)
    width = 0.85 / len(table)
    for index, row in enumerate(table):
        places = [place + (index - (len(table) - 1) / 2) * width for place in range(len(domains))]
        heights = [mean(row.domains[domain]) for domain in domains]
        errors = [deviation(row.domains[domain]) or 0.0 for domain in domains]
        bars = axis.bar(
            places,
            heights,
            width * 0.94,
            color=colours[row.name],
            label=row.label,
            yerr=errors if any(errors) else None,
            error_kw={"linewidth": 1},
        )
        axis.bar_label(bars, fmt="%.0f", fontsize=7, padding=2)
    axis.set_xticks(range(len(domains)), domains)
    axis.set(ylabel="accuracy (%)", title="After the last round, by target domain", ylim=(0, 108))
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
