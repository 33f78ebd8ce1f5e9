"""Weights of the cluster models in the clients' start models, by round (Figure 5 of the FedWCA paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.results.pictures import style
from fedwca.results.pictures.accuracy import check_has_rounds
from fedwca.results.read_run import Run
from fedwca.results.shown_records import Record
from fedwca.results.trial_key import TrialKey

PANELS = 4
FRAMES = 100
"""Maximum number of rounds of an animation."""
MOST = 40
"""Maximum number of clients with a row each; more are averaged by domain and cluster."""
Groups = Sequence[tuple[str, int]]
"""Pairs of domain and cluster."""


def weights(run: Run, method: str | None = None, trial: TrialKey | None = None) -> Any:
    """Heat maps of v (eq. 8): rows are clients, columns the server's cluster models, from the second round on.

    Args:
        run: the run.
        method: name of the method; None: the composed method.
        trial: (source model, trial); None: the first.

    Raises:
        NotDrawn: the method has at most one cluster model, or no second round.
    """
    method, records = select_records(run, method, trial)
    return draw_weights({"": spread_records(records, PANELS)}, run.domains, _title(run, method, records[0]))


def spread_records(records: Sequence[Record], most: int) -> list[Record]:
    """At most so many records at equal distances, the first and the last among them.

    >>> spread_records(list(range(10)), 4), spread_records([5], 4)
    ([0, 3, 6, 9], [5])
    """
    step = (len(records) - 1) / max(1, min(most, len(records)) - 1)
    return [records[place] for place in dict.fromkeys(round(i * step) for i in range(min(most, len(records))))]


def draw_weights(records: Mapping[str, Sequence[Record]], domains: Sequence[str], title: str) -> Any:
    """Heat maps of v (eq. 8), a row of panels per method, a column per round.

    Args:
        records: rounds of each method in one run, equally many per method, by its label; a panel with a label counts
            rounds from 0, as the paper does.
        domains: true domain of each client; newcomers, which come last and do not train, are left out.
        title: title of the run.
    """
    groups = {label: group_clients(domains, method_records) for label, method_records in records.items()}
    shapes = [_shape(domains, method_records[0], groups[label]) for label, method_records in records.items()]
    column_count = len(next(iter(records.values())))
    panel_width = min(max(2.4, 0.9 + 0.42 * max(columns for _, columns in shapes)), 13 / column_count)
    fig = style.figure(max(6.5, 1.8 + panel_width * column_count), sum(_height(rows) for rows, _ in shapes), title)
    axes = fig.subplots(len(records), column_count, squeeze=False, sharey="row")
    high = highest_weight(domains, [record for method_records in records.values() for record in method_records])
    for row_axes, (label, method_records) in zip(axes, records.items(), strict=True):
        for index, (axis, record) in enumerate(zip(row_axes, method_records, strict=True)):
            image = draw_panel(axis, domains, record, high, index == 0, groups[label])
            if label:
                axis.set_title(f"{label}, r = {record['round']}", fontsize=10)
    fig.colorbar(image, ax=list(axes.flat), label="weight")
    _explain_frames(fig, list(axes.flat))
    return fig


def weights_animation(run: Run, method: str | None = None, trial: TrialKey | None = None) -> Any:
    """A matplotlib animation of `weights` over the rounds from the second on, at most `FRAMES` of them.

    Raises:
        NotDrawn: as `weights`.
    """
    from matplotlib.animation import FuncAnimation

    method, records = select_records(run, method, trial)
    records = spread_records(records, FRAMES)  # all frames are in memory until the file is written
    groups = group_clients(run.domains, records)
    rows, columns = _shape(run.domains, records[0], groups)
    fig = style.figure(max(6.5, 3.4 + 0.42 * min(columns, 16)), _height(rows), _title(run, method, records[0]))
    axis = fig.subplots()
    high = highest_weight(run.domains, records)

    def frame(index: int) -> Sequence[Any]:
        axis.clear()
        draw_panel(axis, run.domains, records[index], high, True, groups)
        return ()

    image = draw_panel(axis, run.domains, records[0], high, True, groups)
    fig.colorbar(image, ax=axis, label="weight")
    _explain_frames(fig, [axis])
    return FuncAnimation(fig, frame, frames=len(records), init_func=lambda: (), blit=False)


def _explain_frames(fig: Any, axes: Sequence[Any]) -> None:
    """Add a legend of the frames around clients' own clusters, if any of the panels has them."""
    if framed := [axis for axis in axes if axis.get_legend_handles_labels()[0]]:
        style.legend(fig, framed[0], 1)


def select_records(run: Run, method: str | None, trial: TrialKey | None) -> tuple[str, list[Record]]:
    """The method's name, and its records from the second round on.

    Raises:
        NotDrawn: see `weights`.
    """
    check_has_rounds(run)
    trial = trial or run.runs[0]
    name = method or run.composed
    later_records = [record for record in run.rounds(name, trial) if record["round"] >= 1]
    records = [record for record in later_records if record.get("weights")]
    if records and any(len(row) > 1 for row in records[0]["weights"] if isinstance(row, list)):
        return name, records
    label = run.labels.get(name, name)
    reason = f"{label} has no second round with more than one cluster model"
    if later_records and not records:
        reason = f"clients of {label} start from their own models alone"
    raise style.NotDrawn(reason if method else f"{reason}; --method names another method")


def _shape(domains: Sequence[str], record: Record, groups: Groups) -> tuple[int, int]:
    labels, table = label_rows(domains, record, groups)
    return len(labels), len(table[0])


def _title(run: Run, method: str, record: Record) -> str:
    heading = f"{run.labels[method]}: weights of the cluster models in the model each client starts from"
    return f"{heading}\n{run.title}; model {record['source_model']}, trial {record['trial']}"


def _height(rows: int) -> float:
    return 1.9 + max(1.6, (0.24 if rows <= 24 else 0.18) * rows)


def highest_weight(domains: Sequence[str], records: Sequence[Record]) -> float:
    """The largest weight in the picture, the upper end of the colour scale."""
    groups = group_clients(domains, records)
    values = [value for record in records for row in label_rows(domains, record, groups)[1] for value in row]
    return max((value for value in values if not math.isnan(value)), default=1.0)


def group_clients(domains: Sequence[str], records: Sequence[Record]) -> Groups:
    """Pairs of domain and cluster of the clients that took part in some round; empty if each client has its own row."""
    clients = (client for record in records for client in _clients(domains, record))
    groups = {(domain, label) for domain, label, row in clients if not math.isnan(row[0])}
    return sorted(groups) if len(records[0]["labels"]) > MOST else []


def label_rows(domains: Sequence[str], record: Record, groups: Groups = ()) -> tuple[list[str], list[list[float]]]:
    """Row labels and weights: a row per client, or means by domain and cluster.

    Args:
        domains: true domain of each client.
        record: record of a round.
        groups: result of `group_clients`, a row per group, NaN if none of its clients took part; empty: a row per
            client.
    """
    clients = _clients(domains, record)
    if not groups:
        return [f"{domain}  {k}" for k, (domain, _, _) in enumerate(clients)], [row for _, _, row in clients]
    rows_by_group: dict[tuple[str, int], list[list[float]]] = {group: [] for group in groups}
    for domain, label, row in clients:
        if not math.isnan(row[0]):
            rows_by_group[domain, label].append(row)
    absent = [math.nan] * max(len(row) for _, _, row in clients)
    means = [
        [sum(column) / len(rows) for column in zip(*rows, strict=True)] if rows else absent
        for rows in rows_by_group.values()
    ]
    return [f"{domain}, cluster {label}" for domain, label in rows_by_group], means


def _clients(domains: Sequence[str], record: Record) -> list[tuple[str, int, list[float]]]:
    """Domain, cluster and weights of each client that trains; newcomers come last and are left out."""
    labels = record["labels"]
    rows = [[math.nan if value is None else value for value in row] for row in record["weights"]]
    return list(zip(domains[: len(labels)], labels, rows, strict=True))


def draw_panel(
    axis: Any, domains: Sequence[str], record: Record, high: float, show_labels: bool, groups: Groups = ()
) -> Any:
    """Draw one round's heat map, with a frame around each client's own cluster, and numbers where there is room."""
    from matplotlib.patches import Rectangle

    labels, table = label_rows(domains, record, groups)
    image = axis.imshow(table, aspect="auto", cmap=style.MAP, vmin=0, vmax=high)
    columns = len(table[0])
    axis.set_title(f"round {record['round'] + 1}", fontsize=10)
    axis.set_xlabel("cluster model")
    if columns <= 24:
        axis.set_xticks(range(columns), map(str, range(columns)), fontsize=8)
    if show_labels:
        axis.set_yticks(range(len(labels)), labels, fontsize=8 if len(labels) <= 24 else 6.5)
        axis.set_ylabel("clients, averaged" if groups else "client (true domain, number)")
    frame_label = "the client's own cluster"
    for y, row in enumerate(table):
        if not groups and len(row) > record["labels"][y] and columns <= 24:
            corner = (record["labels"][y] - 0.5, y - 0.5)
            frame = Rectangle(corner, 1, 1, fill=False, edgecolor=style.COLOURS[5], linewidth=1.6, label=frame_label)
            axis.add_patch(frame)
            frame_label = ""  # one entry in the legend
        for x, value in enumerate(row if columns <= 8 and not math.isnan(row[0]) else ()):
            colour = "white" if value < 0.55 * high else "black"
            axis.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    return image
