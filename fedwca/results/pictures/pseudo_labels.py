"""Accuracy of pseudo-labels, and agreement of the models that give them."""

from __future__ import annotations

import math
import textwrap
from typing import Any

from fedwca.results.describe_run import describe_deviation, describe_rounds
from fedwca.results.pictures import style
from fedwca.results.pictures.accuracy import check_has_rounds, count_runs, draw_curve
from fedwca.results.read_run import Run

PANELS = {
    "pseudo_label_accuracy": ("images with the right pseudo-label (%)", "Pseudo-label accuracy"),
    "agreement": ("images whose labels agree (share)", "Agreement of the models asked, where they are several"),
}


def pseudo_labels(run: Run) -> Any:
    """Two panels over rounds: pseudo-label accuracy and agreement, each a mean over clients.

    Raises:
        NotDrawn: no rounds were kept, or no client was given pseudo-labels.
    """
    check_has_rounds(run)
    methods = [name for name in run.labels if not all(map(math.isnan, agreements(run, name)))]
    if not methods:
        raise style.NotDrawn("no client was given pseudo-labels")
    fig = style.figure(11, 4.8, run.title)
    axes = fig.subplots(1, 2)
    runs = count_runs(map(run.lines_of, methods))
    band = f"\n({describe_deviation('band', runs)})" if runs > 1 else ""
    looks, last = style.looks(list(run.labels)), list(run.labels)[-1]
    for axis, (field, (unit, title)) in zip(axes, PANELS.items(), strict=True):
        panel_methods = methods if field != "agreement" else [n for n in methods if asks_several(run, n)] or methods
        for name in panel_methods:
            draw_curve(axis, run.lines_of(name), style.line_style(looks[name], name == last), run.labels[name], field)
        xlabel = textwrap.fill(describe_rounds(run.first_models, run.lines), 45)  # as wide as the panel
        axis.set(xlabel=xlabel, ylabel=unit, title=title + band)
        style.count_rounds(axis)
        style.remove_frame(axis)
        if field == "agreement":
            _end_at_one(axis)
    style.legend(fig, axes[0], len(methods))
    return fig


def _end_at_one(axis: Any) -> None:
    """End the axis of a share at 1, where it would end above; markers at 1 are drawn in full."""
    bottom, top = axis.get_ylim()
    axis.set_ylim(bottom, min(top, 1.0))
    for line in axis.lines:
        line.set_clip_on(False)


def asks_several(run: Run, method: str) -> bool:
    """Whether the models of any client ever disagreed; a labeler with a single model always has full agreement."""
    return any(value < 1 for value in agreements(run, method))


def agreements(run: Run, method: str) -> list[float]:
    """The agreement at each client in each round of a method; NaN for clients with labels of their own."""
    return [value for record in run.rounds(method) for value in record.get("agreement", ())]
