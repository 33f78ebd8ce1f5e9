"""Ours beside the published numbers, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.results.comparison import Comparison
from fedwca.results.diverged_runs import NOTE
from fedwca.results.statistics import Sample, sample_of
from fedwca.results.tables import MISSING, Table, mean_cell, sample_cell

Values = Mapping[tuple[str, str], tuple[float, float | None]]
"""(row, source or target) to published mean and standard deviation, percent."""
AVERAGE = "average"
"""What published values call the mean over sources."""
NOTHING = "The paper prints no numbers for this on this data set."


def accuracies_beside(title: str, found: Comparison, rows: Mapping[str, str], values: Values, where: str) -> Table:
    """A line for each source, or target, and row: ours, published, the difference; then over all runs of all of them.

    Args:
        title: of the table.
        found: our runs.
        rows: row to method.
        values: see `Values`.
        where: paper and table of the values; empty where there are none.
    """
    several, named, part = len(found.sources) > 1, found.named, _is_part(values, found.sources)
    lines = []
    for source in [*found.sources, *([AVERAGE] if several else [])]:
        for row, method in rows.items():
            ours = found.sample(method, None if source == AVERAGE else source)
            printed = find_printed(values, row, source, found.sources)
            told = " (ORACLE)" if found.labels[method].endswith("(ORACLE)") else ""
            where_from = "Avg." if source == AVERAGE else source
            beside = compare_cells(ours, printed) if values else []
            mark = found.mark(method, None if source == AVERAGE else source)
            lines.append([f"{where_from}: {row}{told}{mark}", sample_cell(ours, 2), *beside, str(ours.n)])
    notes = ["Mean ± std (ddof 1) of the trial means, percent."]
    notes += [NOTE] if any(found.diverged.values()) else []
    notes += ["Difference: ours − published, points."] if values else []
    if several:
        notes.append(f"Avg.: mean and std over all runs of all {named}s named here, as in the paper's Avg. row.")
        if part:
            notes.append(f"Published beside it: the mean of the printed means of these {named}s; the paper has more.")
    notes.append(f"Published: {where}." if values else NOTHING)
    columns = (f"{named}: row", "ours", *(("published", "difference") if values else ()), "n")
    return Table(title, columns, lines, notes)


def find_printed(values: Values, row: str, source: str, sources: Sequence[str]) -> tuple[float, float | None] | None:
    """What is printed of a row; None where nothing is.

    Args:
        values: see `Values`.
        row: of the table.
        source: or target; `AVERAGE` is the mean of the printed means of ``sources`` where the paper has more of them.
        sources: those of our runs.
    """
    if source != AVERAGE or not _is_part(values, sources):
        return values.get((row, source))
    means = [values[row, one][0] for one in sources if (row, one) in values]
    return (sum(means) / len(means), None) if len(means) == len(sources) else None


def _is_part(values: Values, sources: Sequence[str]) -> bool:
    """Whether the paper prints other sources than these."""
    printed = {source for _, source in values} - {AVERAGE}
    return bool(printed) and printed != set(sources)


def compare_cells(ours: Sample, printed: tuple[float, float | None] | None) -> list[str]:
    """The published value and how far ours is from it, as cells of a line.

    Args:
        ours: of our runs.
        printed: mean and standard deviation; None: nothing is printed.
    """
    if printed is None:
        return [MISSING, ""]
    return [mean_cell(*printed, digits=2), f"{ours.mean - printed[0]:+.2f}" if ours.n else ""]


def messages_beside(
    title: str, counts: Mapping[str, Sequence[int]], epochs: Sequence[int], values: Values, where: str
) -> Table:
    """A line for each way of counting: how often models travel in so many epochs, and what is published.

    Args:
        title: of the table.
        counts: row to its counts, one for each number of epochs.
        epochs: columns.
        values: of the published rows, whose columns are epochs.
        where: paper and table of the values.
    """
    lines = []
    for row, ours in counts.items():
        lines.append([row, *map(str, ours)])
        if (row, str(epochs[0])) in values:
            lines.append([f"{row}, published", *(f"{values[row, str(number)][0]:.0f}" for number in epochs)])
    notes = [
        "A communication is a model that goes up or down, for all clients at once. Counted, not run.",
        "By sec. 3.2 the uniform mean goes down and centroids come up as well: twice as many.",
        f"Published: {where}.",
    ]
    return Table(title, ("row", *(f"{number} epochs" for number in epochs)), lines, notes)


def cluster_letters(labels: Sequence[int]) -> str:
    """Clusters as one letter a client, in the order they appear.

    >>> cluster_letters([2, 2, 0, 1])
    'AABC'
    """
    order = list(dict.fromkeys(labels))
    return "".join(chr(ord("A") + order.index(label)) for label in labels)


def clusters_beside(
    title: str,
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    domains: Mapping[str, Sequence[str]],
    printed: Mapping[str, str],
    where: str,
    blocks: int = 0,
) -> Table:
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
        counts = sample_of([float(len(set(run["labels"]))) for run in runs])
        line = [
            row,
            cluster_letters(runs[0]["labels"]),
            sample_cell(counts),
            sample_cell(sample_of([run["ari"] for run in runs]), 2),
        ]
        there = printed.get(row)
        same = sum(cluster_letters(run["labels"]) == there for run in runs)
        fits = there is not None and len(there) == len(runs[0]["labels"])
        beside = [there or MISSING, str(len(set(there))) if there else "", _agreement(there, blocks) if there else ""]
        lines.append([*line, *([*beside, f"{same} of {len(runs)}" if fits else ""] if printed else []), str(len(runs))])
    orders = {row: ", ".join(dict.fromkeys(domains[row])) for row in found}
    alike = len(set(orders.values())) == 1
    order = next(iter(orders.values())) if alike else "; ".join(f"{row}: {names}" for row, names in orders.items())
    notes = [
        f"Clusters of the first run, one letter a client; clients of one domain stand together ({order}).",
        "Number of clusters and adjusted Rand index to the true domains: mean ± std (ddof 1) over n runs.",
        f"Published: {where}." if printed else NOTHING,
    ]
    beside = ["published", "clusters", "ARI", "the same"] if printed else []
    return Table(title, ("row", "ours", "clusters", "ARI", *beside, "n"), lines, notes)


def _agreement(there: str, blocks: int) -> str:
    """Adjusted Rand index of published clusters to the domains, whose clients stand in blocks of one size."""
    from sklearn.metrics import adjusted_rand_score

    truth = [client * blocks // len(there) for client in range(len(there))]
    return f"{float(adjusted_rand_score(truth, list(there))):.2f}"
