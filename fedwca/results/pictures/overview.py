"""The picture that every run leaves: accuracy over rounds and by target domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.results.pictures import style
from fedwca.results.pictures.accuracy import curve
from fedwca.results.pictures.bars import group
from fedwca.results.summary import Row, summarise


def overview(records: Sequence[Mapping[str, Any]], table: Sequence[Row], path: Path, title: str) -> None:
    """Accuracy over rounds, and accuracy by target domain, side by side in one PNG.

    Args:
        records: lines of ``rounds.jsonl``.
        table: rows to draw; the last one is the composed method and gets the strong colour.
        path: PNG to write.
        title: what was run.
    """
    style.save(drawn(records, table, title), path)


def drawn(records: Sequence[Mapping[str, Any]], table: Sequence[Row], title: str) -> Any:
    """The figure itself, see `overview`."""
    entries = summarise(table)
    figure = style.figure(12, 5, title)
    over_rounds, by_domain = figure.subplots(1, 2, width_ratios=(1, 1.25))
    looks = style.looks([row.name for row in table])
    for row in table:
        own = [record for record in records if record["method"] == row.name]
        curve(over_rounds, own, style.line(looks[row.name], row is table[-1]), row.label)
    over_rounds.set(xlabel="round", ylabel="test accuracy, mean over clients (%)", title="While it learns")
    over_rounds.xaxis.get_major_locator().set_params(integer=True)
    groups = list(table[0].domains)
    for index, row in enumerate(table):
        group(by_domain, entries, row.name, index, groups, looks[row.name], 6)
    crowded = sum(map(len, groups)) > 60  # characters that fit side by side
    by_domain.set_xticks(range(len(groups)), groups, rotation=90 if crowded else 0)
    by_domain.set(ylabel="test accuracy (%)", title="After the last round, by target domain", ylim=(0, 109))
    style.quiet(over_rounds)
    style.quiet(by_domain)
    by_domain.grid(axis="x", visible=False)
    style.legend(figure, over_rounds, len(table))
    return figure
