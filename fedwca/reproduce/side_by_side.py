"""Tables of our results beside the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.core.clustering_scores import adjusted_rand_index
from fedwca.results.comparison import Comparison
from fedwca.results.diverged_runs import NOTE
from fedwca.results.statistics import Sample, sample_of
from fedwca.results.tables import MISSING, Table, mean_cell, sample_cell

Values = Mapping[tuple[str, str], tuple[float, float | None]]
"""(row, source or target) to published mean and standard deviation, percent."""
AVERAGE = "average"
"""What published values call the mean over sources."""
NOTHING = "The paper prints no numbers for this on this data set."


def accuracies_beside(
    title: str, comparison: Comparison, rows: Mapping[str, str], values: Values, citation: str
) -> Table:
    """A line for each source or target and row: ours, published, the difference; then lines over all of them.

    Args:
        title: of the table.
        comparison: of our runs.
        rows: row to method.
        values: see `Values`.
        citation: paper and table of the values; empty where there are none.
    """
    several, named, is_part = len(comparison.sources) > 1, comparison.named, _is_part(values, comparison.sources)
    lines = []
    for source in [*comparison.sources, *([AVERAGE] if several else [])]:
        for row, method in rows.items():
            ours = comparison.sample(method, None if source == AVERAGE else source)
            printed = find_printed(values, row, source, comparison.sources)
            oracle_note = " (ORACLE)" if comparison.labels[method].endswith("(ORACLE)") else ""
            source_name = "Avg." if source == AVERAGE else source
            published_cells = compare_cells(ours, printed) if values else []
            mark = comparison.mark(method, None if source == AVERAGE else source)
            lines.append(
                [f"{source_name}: {row}{oracle_note}{mark}", sample_cell(ours, 2), *published_cells, str(ours.n)]
            )
    notes = ["Mean ± std (ddof 1) of the trial means, percent."]
    notes += [NOTE] if any(comparison.diverged.values()) else []
    notes += ["Difference: ours − published, points."] if values else []
    if several:
        notes.append(f"Avg.: mean and std over all runs of all {named}s named here, as in the paper's Avg. row.")
        if is_part:
            notes.append(f"Published beside it: the mean of the printed means of these {named}s; the paper has more.")
    notes.append(f"Published: {citation}." if values else NOTHING)
    columns = (f"{named}: row", "ours", *(("published", "difference") if values else ()), "n")
    return Table(title, columns, lines, notes)


def find_printed(values: Values, row: str, source: str, sources: Sequence[str]) -> tuple[float, float | None] | None:
    """The printed mean and standard deviation of a row; None if there are none.

    Args:
        values: see `Values`.
        row: of the table.
        source: source or target; for `AVERAGE`, the mean of the printed means of ``sources`` if the paper has others.
        sources: sources or targets of our runs.
    """
    if source != AVERAGE or not _is_part(values, sources):
        return values.get((row, source))
    means = [values[row, name][0] for name in sources if (row, name) in values]
    return (sum(means) / len(means), None) if len(means) == len(sources) else None


def _is_part(values: Values, sources: Sequence[str]) -> bool:
    """Whether the paper's sources or targets are not the same as these."""
    printed = {source for _, source in values} - {AVERAGE}
    return bool(printed) and printed != set(sources)


def compare_cells(ours: Sample, printed: tuple[float, float | None] | None) -> list[str]:
    """The published value and the difference of ours to it, as cells of a line.

    Args:
        ours: the sample of our runs.
        printed: the printed mean and standard deviation; None if there are none.
    """
    if printed is None:
        return [MISSING, ""]
    return [mean_cell(*printed, digits=2), f"{ours.mean - printed[0]:+z.2f}" if ours.n else ""]


def messages_beside(
    title: str, counts: Mapping[str, Sequence[int]], epochs: Sequence[int], values: Values, citation: str
) -> Table:
    """A line for each way of counting communications, by number of epochs, and lines of the published numbers.

    Args:
        title: of the table.
        counts: row to its counts, one for each number of epochs.
        epochs: numbers of epochs, which are the columns.
        values: published numbers by row and number of epochs.
        citation: paper and table of the values.
    """
    lines = []
    for row, ours in counts.items():
        lines.append([row, *map(str, ours)])
        if (row, str(epochs[0])) in values:
            lines.append([f"{row}, published", *(f"{values[row, str(number)][0]:.0f}" for number in epochs)])
    notes = [
        "A communication is a model that goes up or down, for all clients at once. Counted, not run.",
        "By sec. 3.2 the uniform mean goes down and centroids come up as well: twice as many.",
        f"Published: {citation}.",
    ]
    return Table(title, ("row", *(f"{number} epochs" for number in epochs)), lines, notes)


def cluster_letters(labels: Sequence[int]) -> str:
    """Clusters as one letter for each client, A for the first that appears.

    >>> cluster_letters([2, 2, 0, 1])
    'AABC'
    """
    order = list(dict.fromkeys(labels))
    return "".join(chr(ord("A") + order.index(label)) for label in labels)


def clusters_beside(
    title: str,
    clusterings: Mapping[str, Sequence[Mapping[str, Any]]],
    domains: Mapping[str, Sequence[str]],
    printed: Mapping[str, str],
    citation: str,
    blocks: int = 0,
) -> Table:
    """A line for each row: our clusters of the first run, their number and ARI over all runs, and the published ones.

    Args:
        title: of the table.
        clusterings: row to the clusterings of its runs: ``labels [K]`` and ``ari``.
        domains: row to the true domain of each client, K names.
        printed: row to the published clusters, one letter for each client.
        citation: paper and table of these; empty where there are none.
        blocks: number of target domains of these, whose clients stand in blocks of equal size.
    """
    lines = []
    for row, runs in clusterings.items():
        counts = sample_of([float(len(set(run["labels"]))) for run in runs])
        line = [
            row,
            cluster_letters(runs[0]["labels"]),
            sample_cell(counts),
            sample_cell(sample_of([run["ari"] for run in runs]), 2),
        ]
        published = printed.get(row)
        equal_runs = sum(cluster_letters(run["labels"]) == published for run in runs)
        comparable = published is not None and len(published) == len(runs[0]["labels"])
        published_columns = [
            published or MISSING,
            str(len(set(published))) if published else "",
            _agreement(published, blocks) if published else "",
        ]
        lines.append(
            [
                *line,
                *([*published_columns, f"{equal_runs} of {len(runs)}" if comparable else ""] if printed else []),
                str(len(runs)),
            ]
        )
    orders = {row: ", ".join(dict.fromkeys(domains[row])) for row in clusterings}
    same_order = len(set(orders.values())) == 1
    order = next(iter(orders.values())) if same_order else "; ".join(f"{row}: {names}" for row, names in orders.items())
    notes = [
        f"Clusters of the first run, one letter a client; clients of one domain stand together ({order}).",
        "Number of clusters and adjusted Rand index to the true domains: mean ± std (ddof 1) over n runs.",
        f"Published: {citation}." if printed else NOTHING,
    ]
    published_columns = ["published", "clusters", "ARI", "the same"] if printed else []
    return Table(title, ("row", "ours", "clusters", "ARI", *published_columns, "n"), lines, notes)


def _agreement(published: str, blocks: int) -> str:
    """Adjusted Rand index of published clusters to the domains, whose clients stand in blocks of equal size."""
    truth = [client * blocks // len(published) for client in range(len(published))]
    return f"{adjusted_rand_index(truth, published):.2f}"
