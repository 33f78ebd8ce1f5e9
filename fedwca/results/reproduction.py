"""Ours beside the published numbers, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.results.comparison import Comparison
from fedwca.results.formats import Grid, shown
from fedwca.results.statistics import Sample, sample

Values = Mapping[tuple[str, str], tuple[float, float | None]]
"""(row, source) to published mean and standard deviation, percent."""
AVERAGE = "average"


def accuracies(title: str, found: Comparison, rows: Mapping[str, str], values: Values, where: str) -> Grid:
    """A line for each source and row: ours, published, the difference; then over all runs of all sources.

    Args:
        title: of the table.
        found: our runs.
        rows: row to method.
        values: see `Values`.
        where: paper and table of the values; empty where there are none.
    """
    several = len(found.sources) > 1
    printed_sources = {source for _, source in values} - {AVERAGE}
    part = bool(printed_sources) and printed_sources != set(found.sources)
    lines = []
    for source in [*found.sources, *([AVERAGE] if several else [])]:
        for row, method in rows.items():
            ours = found.sample(method, None if source == AVERAGE else source)
            printed = values.get((row, source))
            if part and source == AVERAGE:
                printed = _mean([values[row, one][0] for one in found.sources if (row, one) in values], found.sources)
            lines.append([f"{source}: {row}", shown(ours, 2), *_beside(ours, printed), str(ours.n)])
    notes = [
        "Ours and published: mean ± std (ddof 1) of the trial means, percent; difference: ours − published, points."
    ]
    if several:
        notes.append("average: mean and std over all runs of all sources named here, as in the paper's Avg. row.")
        if part:
            notes.append("Published beside it: the mean of the printed means of these sources; the paper has more.")
    notes.append(f"Published: {where}." if where else "Nothing is published for this data set and table.")
    return Grid(title, ("source: row", "ours", "published", "difference", "n"), lines, notes)


def _mean(printed: Sequence[float], sources: Sequence[str]) -> tuple[float, None] | None:
    """The mean of printed values, if there is one for each source."""
    return (sum(printed) / len(printed), None) if len(printed) == len(sources) else None


def _beside(ours: Sample, printed: tuple[float, float | None] | None) -> list[str]:
    if printed is None:
        return ["–", ""]
    return [shown(Sample(*printed, 15), 2), f"{ours.mean - printed[0]:+.2f}" if ours.n else ""]


def letters(labels: Sequence[int]) -> str:
    """Clusters as one letter a client, in the order they appear.

    >>> letters([2, 2, 0, 1])
    'AABC'
    """
    order = list(dict.fromkeys(labels))
    return "".join(chr(ord("A") + order.index(label)) for label in labels)


def clusters(
    title: str,
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    domains: Mapping[str, Sequence[str]],
    printed: Mapping[str, str],
    where: str,
    blocks: int = 0,
) -> Grid:
    """A line for each row: our clusters of the first run, their number and ARI over runs, and the published ones.

    Args:
        title: of the table.
        found: row to the clusterings of its runs: ``labels [K]`` and ``ari``.
        domains: row to the true domain of each client, K names.
        printed: row to one letter a client.
        where: paper and table of these; empty where there are none.
        blocks: target domains of these, whose clients stand in blocks of one size.
    """
    lines = []
    for row, runs in found.items():
        counts = sample([float(len(set(run["labels"]))) for run in runs])
        line = [row, letters(runs[0]["labels"]), shown(counts, 1), shown(sample([run["ari"] for run in runs]), 2)]
        there = printed.get(row)
        same = sum(letters(run["labels"]) == there for run in runs)
        fits = there is not None and len(there) == len(runs[0]["labels"])
        line += [there or "–", str(len(set(there))) if there else "", _agreement(there, blocks) if there else ""]
        lines.append([*line, f"{same} of {len(runs)}" if fits else "", str(len(runs))])
    order = "; ".join(
        f"{', '.join(dict.fromkeys(names))}" for names in dict.fromkeys(tuple(domains[row]) for row in found)
    )
    notes = [
        f"Clusters of the first run, one letter a client; clients of one domain stand together ({order}).",
        "Number of clusters and adjusted Rand index to the true domains: mean ± std (ddof 1) over n runs.",
        f"Published: {where}." if where else "Nothing is published for this data set and table.",
    ]
    columns = ("row", "ours", "clusters", "ARI", "published", "clusters", "ARI", "the same", "n")
    return Grid(title, columns, lines, notes)


def _agreement(there: str, blocks: int) -> str:
    """Adjusted Rand index of published clusters to the domains, whose clients stand in blocks of one size."""
    from sklearn.metrics import adjusted_rand_score

    truth = [client * blocks // len(there) for client in range(len(there))]
    return f"{float(adjusted_rand_score(truth, list(there))):.2f}"
