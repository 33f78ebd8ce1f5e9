"""Accuracy by target domain and method (Figure 4 of the FedWCA paper)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedwca.results.describe_run import describe_deviation
from fedwca.results.pictures import style
from fedwca.results.read_run import Run

ROW = 44
"""Maximum number of bars in one row of the picture, unless a single domain has more."""

UPRIGHT = 20
"""Letters in a line of a name that stands upright."""


def bars(run: Run) -> Any:
    """`draw_bars` of a run's methods.

    Raises:
        NotDrawn: the run has no results.
    """
    if not run.results:
        raise style.NotDrawn("neither rounds.jsonl nor summary.json holds a result")
    return draw_bars(run.results, run.title)


def draw_bars(summary: Mapping[str, Any], title: str) -> Any:
    """A group of bars per target domain and one for their mean, a bar per method; whiskers: one std over runs.

    Args:
        summary: results of each method, see `fedwca.results.table_rows.summarise`.
        title: title of the run.
    """
    methods = list(summary)
    groups: list[str | None] = [*list_domains(summary), None]  # None: their mean
    per_row = max(1, ROW // len(methods))
    rows = [groups[start : start + per_row] for start in range(0, len(groups), per_row)]
    width = max(8.0, min(13.0, 0.28 * len(rows[0]) * (len(methods) + 1)))
    longest = max(len(name or "") for name in groups)
    fig = style.figure(width, 1.5 + (4 if longest > UPRIGHT // 2 else 3) * len(rows), title)
    axes = fig.subplots(len(rows), 1, squeeze=False)[:, 0]
    looks = style.looks(methods)
    round_text, accuracy_text = describe_accuracy(summary)
    for axis, row_groups in zip(axes, rows, strict=True):
        for index, name in enumerate(methods):
            draw_method_bars(axis, summary, name, index, row_groups, looks[name], width - 1)
        # As many places in the last row, which may have fewer groups.
        axis.set(ylabel=f"{accuracy_text} (%)", xlim=(-0.5, len(rows[0]) - 0.5))
        name_groups(axis, row_groups, len(rows[0]), width - 1)
        style.remove_frame(axis)
        axis.grid(axis="x", visible=False)
    limit_percent(axes)
    runs = max(int(entry["n"]) for entry in summary.values())
    clients_text = "new clients" if accuracy_text != TESTED else "the clients of a target domain"
    what_is_shown = f"{round_text}, mean over {clients_text}; {describe_deviation('whiskers', runs)}"
    axes[0].set_title(textwrap.fill(what_is_shown, int(width * 11)), fontsize=10)
    style.legend(fig, axes[0], len(methods))
    return fig


def list_domains(results: Mapping[str, Any]) -> list[str]:
    """Names of all methods' domains, in order; a method whose every run diverged in a folder of its own has none.

    >>> list_domains({"lost": {"domains": {}}, "fedavg": {"domains": {"usps": 80.0, "svhn": 60.0}}})
    ['usps', 'svhn']
    """
    return list(dict.fromkeys(domain for entry in results.values() for domain in entry["domains"]))


def name_groups(axis: Any, groups: Sequence[str | None], places: int, inches: float) -> None:
    """Name the groups of bars, upright if the names do not fit side by side.

    Args:
        axis: of the bars.
        groups: their names; None: the mean.
        places: number of groups that the axis has room for.
        inches: width of the axis.
    """
    names = ["mean" if group is None else group for group in groups]
    if places * max(map(len, names)) > 9.5 * inches:
        axis.set_xticks(range(len(names)), [textwrap.fill(name, UPRIGHT) for name in names], rotation=90)
    else:
        axis.set_xticks(range(len(names)), names)


def limit_percent(axes: Collection[Any]) -> None:
    """Scale axes of bars from 0 to one height that has room for 100 %, all whiskers and the numbers above them."""
    top = max([100.0, *(axis.dataLim.y1 for axis in axes)]) + 9
    for axis in axes:
        axis.set_ylim(0, top)


TESTED = "test accuracy"


def describe_accuracy(results: Mapping[str, Any]) -> tuple[str, str]:
    """Phrases for the round and the accuracy that are shown: those of new clients if validation images chose the round.

    >>> describe_accuracy({"fedavg": {"mean": 90.0}})
    ('After the last round', 'test accuracy')
    """
    if any("round" in entry for entry in results.values()):
        return "In the round that validation images choose", "new clients' accuracy"
    return "After the last round", TESTED


def draw_method_bars(
    axis: Any,
    summary: Mapping[str, Any],
    name: str,
    index: int,
    groups: list[str | None],
    look: dict[str, Any],
    inches: float,
) -> None:
    """Draw one method's bars: the index-th bar of each of the ``groups``, target domains or None for their mean.

    A domain that the method has no value of gets no bar. The bars are labelled with numbers if there is room on an axis
    that is ``inches`` wide.
    """
    entry, count = summary[name], len(summary)
    width = min(0.4, 0.85 / count)
    positions = [position + (index - (count - 1) / 2) * width for position in range(len(groups))]
    heights = [_number(entry["mean"] if g is None else entry["domains"].get(g)) for g in groups]
    errors = [_number(entry["std"] if g is None else entry["domain_stds"].get(g)) for g in groups]
    whiskers = [0.0 if math.isnan(e) else e for e in errors]
    container = axis.bar(
        positions,
        heights,
        width * 0.94,
        label=style.legend_label(entry["label"]),
        color=look["color"],
        hatch=look["hatch"],
        edgecolor="white",
        linewidth=0.3,
        yerr=whiskers if any(whiskers) else None,
        error_kw={"linewidth": 0.9},
    )
    if any(whiskers):
        style.outline(container.errorbar.lines[2])
    if inches * width / len(groups) > 0.21:  # a three-figure number at 7 points
        axis.bar_label(container, fmt=style.whole_percent, fontsize=7, padding=2)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
