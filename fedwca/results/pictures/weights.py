"""Which clusters' models clients start from, by round (Figure 5 of the FedWCA paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.results.pictures import style
from fedwca.results.pictures.accuracy import check_has_rounds
from fedwca.results.read_run import Run
from fedwca.results.table_rows import Record
from fedwca.results.trial_key import TrialKey

PANELS = 4
MOST = 40
"""Clients with a row of their own; more are averaged by domain and cluster."""
Groups = Sequence[tuple[str, int]]
"""Domains and clusters."""


def weights(run: Run, method: str | None = None, trial: TrialKey | None = None) -> Any:
    """Heat maps of v (eq. 8): rows are clients, columns the server's cluster models, from the second round on.

    Args:
        run: the run.
        method: its name; the composed one unless given.
        trial: (source model, trial); the first unless given.

    Raises:
        NotDrawn: it has not more than one cluster model, or was not run.
    """
    method, records = select_records(run, method, trial)
    step = (len(records) - 1) / max(1, min(PANELS, len(records)) - 1)
    shown = list(dict.fromkeys(round(index * step) for index in range(min(PANELS, len(records)))))
    return draw_weights({"": [records[index] for index in shown]}, run.domains, _title(run, method, records[0]))


def draw_weights(records: Mapping[str, Sequence[Record]], domains: Sequence[str], title: str) -> Any:
    """Heat maps of v (eq. 8), a row of panels a method, a column a round.

    Args:
        records: what a method is called to its rounds in one run, equally many of each; a panel with a method's name
            counts rounds from 0, as the paper does.
        domains: true domain of each client; those of newcomers, which come last and start no round, are left out.
        title: what was run.
    """
    groups = {label: group_clients(domains, found) for label, found in records.items()}
    shapes = [_shape(domains, found[0], groups[label]) for label, found in records.items()]
    across = len(next(iter(records.values())))
    each = min(max(2.4, 0.9 + 0.42 * max(columns for _, columns in shapes)), 13 / across)
    made = style.figure(max(6.5, 1.8 + each * across), sum(_height(rows) for rows, _ in shapes), title)
    axes = made.subplots(len(records), across, squeeze=False, sharey="row")
    high = highest_weight(domains, [record for found in records.values() for record in found])
    for line, (label, found) in zip(axes, records.items(), strict=True):
        for index, (axis, record) in enumerate(zip(line, found, strict=True)):
            image = draw_panel(axis, domains, record, high, index == 0, groups[label])
            if label:
                axis.set_title(f"{label}, r = {record['round']}", fontsize=10)
    made.colorbar(image, ax=list(axes.flat), label="weight")
    return made


def weights_animation(run: Run, method: str | None = None, trial: TrialKey | None = None) -> Any:
    """`weights` of every round from the second, one after the other: a matplotlib animation.

    Raises:
        NotDrawn: as `weights`.
    """
    from matplotlib.animation import FuncAnimation

    method, records = select_records(run, method, trial)
    groups = group_clients(run.domains, records)
    rows, columns = _shape(run.domains, records[0], groups)
    made = style.figure(max(6.5, 3.4 + 0.42 * min(columns, 16)), _height(rows), _title(run, method, records[0]))
    axis = made.subplots()
    high = highest_weight(run.domains, records)

    def frame(index: int) -> Sequence[Any]:
        axis.clear()
        draw_panel(axis, run.domains, records[index], high, True, groups)
        return ()

    image = draw_panel(axis, run.domains, records[0], high, True, groups)
    made.colorbar(image, ax=axis, label="weight")
    return FuncAnimation(made, frame, frames=len(records), init_func=lambda: (), blit=False)


def select_records(run: Run, method: str | None, trial: TrialKey | None) -> tuple[str, list[Record]]:
    """The method, and its records from the second round on.

    Raises:
        NotDrawn: see `weights`.
    """
    check_has_rounds(run)
    trial = trial or run.runs[0]
    name = method or run.own
    records = [record for record in run.rounds(name, trial) if record["round"] >= 1]
    if records and any(len(row) > 1 for row in records[0]["weights"] or () if isinstance(row, list)):
        return name, records
    why = f"{run.labels.get(name, name)} has no second round with more than one cluster model"
    raise style.NotDrawn(why if method else f"{why}; --method names another method")


def _shape(domains: Sequence[str], record: Record, groups: Groups) -> tuple[int, int]:
    labels, table = label_rows(domains, record, groups)
    return len(labels), len(table[0])


def _title(run: Run, method: str, record: Record) -> str:
    what = f"{run.labels[method]}: weights of the cluster models in the model each client starts from"
    return f"{what}\n{run.title}; model {record['source_model']}, trial {record['trial']}"


def _height(rows: int) -> float:
    return 1.9 + max(1.6, (0.24 if rows <= 24 else 0.18) * rows)


def highest_weight(domains: Sequence[str], records: Sequence[Record]) -> float:
    """The largest weight that is drawn, the top of the colour scale."""
    groups = group_clients(domains, records)
    values = [value for record in records for row in label_rows(domains, record, groups)[1] for value in row]
    return max((value for value in values if not math.isnan(value)), default=1.0)


def group_clients(domains: Sequence[str], records: Sequence[Record]) -> Groups:
    """Domain and cluster of the clients that took part in some rounds, where clients are many; nothing where each has a
    row.
    """
    every = (client for record in records for client in _clients(domains, record))
    found = {(domain, label) for domain, label, row in every if not math.isnan(row[0])}
    return sorted(found) if len(records[0]["labels"]) > MOST else []


def label_rows(domains: Sequence[str], record: Record, groups: Groups = ()) -> tuple[list[str], list[list[float]]]:
    """Row labels and weights: a client each, or means by domain and cluster.

    Args:
        domains: true domain of each client.
        record: of a round.
        groups: of `group_clients`, a row each, NaN where nobody of it took part; none: clients.
    """
    clients = _clients(domains, record)
    if not groups:
        return [f"{domain}  {k}" for k, (domain, _, _) in enumerate(clients)], [row for _, _, row in clients]
    found: dict[tuple[str, int], list[list[float]]] = {group: [] for group in groups}
    for domain, label, row in clients:
        if not math.isnan(row[0]):
            found[domain, label].append(row)
    absent = [math.nan] * max(len(row) for _, _, row in clients)
    means = [
        [sum(column) / len(rows) for column in zip(*rows, strict=True)] if rows else absent for rows in found.values()
    ]
    return [f"{domain}, cluster {label}" for domain, label in found], means


def _clients(domains: Sequence[str], record: Record) -> list[tuple[str, int, list[float]]]:
    """Domain, cluster and weights of each client that trains; newcomers are behind them."""
    labels = record["labels"]
    rows = [[math.nan if value is None else value for value in row] for row in record["weights"]]
    return list(zip(domains[: len(labels)], labels, rows, strict=True))


def draw_panel(axis: Any, domains: Sequence[str], record: Record, high: float, named: bool, groups: Groups = ()) -> Any:
    """One round's heat map; a frame is around the own cluster of a client, numbers where there is room."""
    labels, table = label_rows(domains, record, groups)
    image = axis.imshow(table, aspect="auto", cmap=style.MAP, vmin=0, vmax=high)
    columns = len(table[0])
    axis.set_title(f"round {record['round'] + 1}", fontsize=10)
    axis.set_xlabel("cluster model")
    if columns <= 24:
        axis.set_xticks(range(columns), map(str, range(columns)), fontsize=8)
    if named:
        axis.set_yticks(range(len(labels)), labels, fontsize=8 if len(labels) <= 24 else 6.5)
        axis.set_ylabel("clients, averaged" if groups else "client (true domain, number)")
    for y, row in enumerate(table):
        if not groups and len(row) > record["labels"][y] and columns <= 24:
            frame = {"fill": False, "edgecolor": style.COLOURS[5], "linewidth": 1.6}
            axis.add_patch(_box(record["labels"][y], y, frame))
        for x, value in enumerate(row if columns <= 8 and not math.isnan(row[0]) else ()):
            colour = "white" if value < 0.55 * high else "black"
            axis.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    return image


def _box(x: int, y: int, frame: dict[str, Any]) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, **frame)
