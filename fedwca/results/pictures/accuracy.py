"""Accuracy over rounds, one curve per method."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedwca.core.mean import mean
from fedwca.results.describe_run import describe_deviation, describe_rounds, describe_single_run
from fedwca.results.diverged_runs import DIVERGED, counted_rounds
from fedwca.results.pictures import style
from fedwca.results.pictures.bars import TESTED, describe_accuracy
from fedwca.results.read_run import Run
from fedwca.results.shown_records import Record
from fedwca.results.statistics import deviation
from fedwca.results.trial_key import TrialKey


def accuracy(run: Run) -> Any:
    """Mean accuracy over clients by round, from the first model on; a band of one standard deviation over several runs.

    Raises:
        NotDrawn: no rounds were kept.
    """
    check_has_rounds(run)
    band = "; " + describe_deviation("band", count_runs(run.lines_of(name) for name in run.labels))
    curves = {name: (label, run.lines_of(name)) for name, label in run.labels.items()}
    rounds_text, (_, accuracy_text) = describe_rounds(run.first_models, run.lines), describe_accuracy(run.results)
    return _draw_figure(curves, run.title, rounds_text, band, list(curves)[-1], accuracy_text)


def draw_curves(curves: Mapping[str, tuple[str, Sequence[Record]]], title: str, accuracy_text: str = TESTED) -> Any:
    """Mean accuracy over the counted clients by round, a curve per method; a band of one standard deviation over runs.

    Args:
        curves: by method, its label in the legend, and records of the rounds, including those in which a run diverged.
        title: title of the picture.
        accuracy_text: what the records' accuracy is, see `describe_accuracy`.
    """
    counted = [counted_rounds(records) for _, records in curves.values()]
    several = any(len(rounds) > len({record["round"] for record in rounds}) for rounds in counted)
    band = "; band: one standard deviation" if several else f"; {describe_single_run(1)}"
    return _draw_figure(curves, title, "rounds", band, accuracy_text=accuracy_text)


def _draw_figure(
    curves: Mapping[str, tuple[str, Sequence[Record]]],
    title: str,
    rounds: str,
    band: str,
    emphasised: str = "",
    accuracy_text: str = TESTED,
) -> Any:
    """A figure of one curve per method, given its label and records by the name that its colour belongs to."""
    fig = style.figure(9, 5, title)
    axis, looks = fig.subplots(), style.looks(list(curves))
    for name, (label, records) in curves.items():
        draw_curve(axis, list(records), style.line_style(looks[name], name == emphasised), label)
    axis.set(xlabel=rounds, ylabel=f"{accuracy_text} (%)", title="Mean over clients" + band)
    style.count_rounds(axis)
    style.remove_frame(axis)
    style.legend(fig, axis, len(curves))
    return fig


def check_has_rounds(run: Run) -> None:
    """Check that a run has a round after the model that clients start from.

    Raises:
        NotDrawn: it has none.
    """
    if not run.records:
        raise style.NotDrawn("rounds.jsonl is not in the folder, or holds no whole line")
    if all(record["round"] < 0 for record in run.records):
        raise style.NotDrawn(f"no round was run, only the {run.first_model} was measured")


def count_runs(records_by_method: Iterable[Sequence[Record]]) -> int:
    """Number of runs over which curves are means; the highest, where runs of some methods diverged.

    Args:
        records_by_method: of each method, including those in which a run diverged.
    """
    drawn = [counted_rounds(records) for records in records_by_method]
    return max((len(set(map(TrialKey.of, records))) for records in drawn), default=0)


def mean_by_round(records: list[Record], field: str) -> dict[int, list[float]]:
    """Mean of a field over clients: for each number of rounds done, one value per run that means count, without NaN."""
    values: dict[int, list[float]] = defaultdict(list)
    for record in counted_rounds(records):
        if field in record and not math.isnan(value := mean(record[field])):
            values[record["round"] + 1].append(value)
    return dict(sorted(values.items()))


def draw_curve(axis: Any, records: list[Record], look: dict[str, Any], label: str, field: str = "accuracy") -> None:
    """Draw the mean and band over runs, cut where no value can be; a level line for a method that never trains.

    Args:
        axis: to draw on.
        records: a method's, including those in which a run diverged.
        look: style of the line.
        label: text in the legend.
        field: what is averaged over clients.
    """
    values = mean_by_round(records, field)
    if not values:
        return
    means = [statistics.fmean(value) for value in values.values()]
    level = list(values) == [0] and not any(DIVERGED in record for record in records)
    style.draw_line(axis, list(zip(values, means, strict=True)), look, label, level)
    if level:
        return
    deviations = [deviation(value) or 0.0 for value in values.values()]
    if any(deviations):
        most = 1.0 if field == "agreement" else 100.0  # a share, or percent; nothing lies outside of 0 and this
        low = [max(0.0, m - s) for m, s in zip(means, deviations, strict=True)]
        high = [min(most, m + s) for m, s in zip(means, deviations, strict=True)]
        axis.fill_between(list(values), low, high, color=look["color"], alpha=0.13, linewidth=0)
