"""The picture that is saved with every run: accuracy over rounds and by target domain."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.results.describe_run import describe_deviation, describe_rounds
from fedwca.results.pictures import style
from fedwca.results.pictures.accuracy import count_runs, draw_curve
from fedwca.results.pictures.bars import (
    TESTED,
    describe_accuracy,
    draw_method_bars,
    limit_percent,
    list_domains,
    name_groups,
)
from fedwca.results.shown_records import Record

MOST = 120
"""Maximum number of bars by target domain; with more there are only those of the mean."""


def overview(
    records: Sequence[Record], results: Mapping[str, Any], path: Path, title: str, first_models: str = "first model"
) -> None:
    """Write the picture as a PNG.

    Args:
        records: see `draw_overview`.
        results: see `draw_overview`.
        path: the PNG file to write.
        title: title of the run.
        first_models: see `draw_overview`.
    """
    style.save(draw_overview(records, results, title, first_models), path)


def draw_overview(
    records: Sequence[Record], results: Mapping[str, Any], title: str, first_models: str = "first model"
) -> Any:
    """Accuracy over rounds, and accuracy by target domain, or by group of new clients, side by side.

    Args:
        records: lines of ``rounds.jsonl``, including those in which a run diverged.
        results: results of each method, see `fedwca.results.table_rows.summarise`; the last one, the composed method,
            gets the strong line.
        title: title of the run.
        first_models: what clients start from, in words, see `fedwca.results.read_run.Run.first_models`.
    """
    figure = style.figure(12, 5, title)
    over_rounds, by_domain = figure.subplots(1, 2, width_ratios=(1, 1.25))
    looks = style.looks(list(results))
    records_by_method = {name: [record for record in records if record["method"] == name] for name in results}
    for name, entry in results.items():
        draw_curve(
            over_rounds,
            records_by_method[name],
            style.line_style(looks[name], name == list(results)[-1]),
            entry["label"],
        )
    round_text, accuracy_text = describe_accuracy(results)
    runs = count_runs(records_by_method.values())
    band, whiskers = (f"\n({describe_deviation(mark, runs)})" if runs > 1 else "" for mark in ("band", "whiskers"))
    over_rounds.set(
        xlabel=textwrap.fill(describe_rounds(first_models, records), 50),  # as wide as the panel
        ylabel=f"{accuracy_text}, mean over clients (%)",
        title=f"While it learns{band}",
    )
    style.count_rounds(over_rounds)
    domains = list_domains(results)  # none where every run of every method diverged
    groups: list[str | None] = [*domains] if 0 < len(domains) * len(results) <= MOST else [None]
    by_whom = ", by target domain" if accuracy_text == TESTED else ""
    if groups == [None]:
        by_whom = ", mean over clients"
        by_whom += f"\n(fedwca plot RUN bars shows each of {len(domains)} groups)" if domains else ""
    for index, name in enumerate(results):
        draw_method_bars(by_domain, results, name, index, groups, looks[name], 6)
    name_groups(by_domain, groups, len(groups), 6.3)
    by_domain.set(ylabel=f"{accuracy_text} (%)", title=round_text + by_whom + whiskers)
    limit_percent([by_domain])
    style.remove_frame(over_rounds)
    style.remove_frame(by_domain)
    by_domain.grid(axis="x", visible=False)
    style.legend(figure, over_rounds, len(results), bars=by_domain)
    return figure
