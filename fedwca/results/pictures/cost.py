"""Accuracy against its cost: bytes that would be sent, and seconds."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from fedwca.core.mean import mean
from fedwca.results.diverged_runs import counted_rounds
from fedwca.results.pictures import style
from fedwca.results.pictures.accuracy import check_has_rounds
from fedwca.results.pictures.bars import describe_accuracy
from fedwca.results.read_run import Run
from fedwca.results.trial_key import TrialKey

PANELS = {"bytes": "sent so far, all clients, both ways (MB)", "seconds": "time of rounds so far (s, by the clock)"}


def cost(run: Run) -> Any:
    """Two panels: accuracy against megabytes (10⁶ bytes) sent so far, and against seconds of training so far.

    Raises:
        NotDrawn: no rounds were kept.
    """
    check_has_rounds(run)
    fig = style.figure(11, 4.8, run.title)
    axes = fig.subplots(1, 2, sharey=True)
    names = list(run.labels)
    looks = style.looks(names)
    for axis, (quantity, axis_label) in zip(axes, PANELS.items(), strict=True):
        for name in names:
            points = cumulative_cost(run, name, quantity)
            look = style.line_style(looks[name], name == names[-1])
            if points:
                level = len(points) == 1 and name not in run.diverged
                style.draw_line(axis, points, look, run.labels[name], level)
        axis.set(xlabel=axis_label, title=f"Accuracy against {quantity}")
        axis.set_xlim(left=0)
        style.remove_frame(axis)
    axes[0].set_ylabel(f"{describe_accuracy(run.results)[1]}, mean over clients (%)")
    style.legend(fig, axes[0], len(names))
    return fig


def cumulative_cost(run: Run, method: str, quantity: str) -> list[tuple[float, float]]:
    """Points (cost so far, accuracy in percent) by round, means over runs; the source model costs nothing."""
    points: dict[int, list[tuple[float, float]]] = defaultdict(list)
    records = counted_rounds(run.lines_of(method))
    for trial in run.runs:
        total = 0.0
        for record in (record for record in records if TrialKey.of(record) == trial):
            if record["round"] >= 0:
                sent = (record.get("bytes_down", 0) + record.get("bytes_up", 0)) / 1e6
                total += sent if quantity == "bytes" else record.get("seconds", {}).get("round", 0.0)
            points[record["round"]].append((total, mean(record["accuracy"])))
    means = [[statistics.fmean(values) for values in zip(*points[r], strict=True)] for r in sorted(points)]
    return [(x, y) for x, y in means]
