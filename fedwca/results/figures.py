"""The pictures of `fedwca reproduce`: Figures 4, 5 and 6 of FedWCA drawn from runs of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.data.cache import write_atomically
from fedwca.data.metrics import mean
from fedwca.reproduce.tables import cluster_letters
from fedwca.results.statistics import deviation
from fedwca.results.summary import Row

# Okabe and Ito's palette without its yellow, the strong blue last.
COLOURS = ("#999999", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#000000")
OWN = "#0072B2"


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # a canvas of its own: no window, no global state of pyplot
    return figure


def _save(figure: Any, path: Path) -> None:
    write_atomically(path, lambda file: figure.savefig(file, dpi=120, format="png"))


def by_domain(table: Sequence[Row], labels: Sequence[str], path: Path, title: str) -> None:
    """Figure 4: accuracy by target domain, one bar a method, the last one in the strong colour; std as whiskers."""
    figure = _figure(9, 4.8)
    axis = figure.subplots()
    domains, width = list(table[0].domains), 0.85 / len(table)
    for index, (row, label) in enumerate(zip(table, labels, strict=True)):
        places = [place + (index - (len(table) - 1) / 2) * width for place in range(len(domains))]
        errors = [deviation(row.domains[domain]) or 0.0 for domain in domains]
        axis.bar(
            places,
            [mean(row.domains[domain]) for domain in domains],
            0.94 * width,
            color=OWN if index == len(table) - 1 else COLOURS[index % len(COLOURS)],
            label=label,
            yerr=errors if any(errors) else None,
            error_kw={"linewidth": 1},
        )
    axis.set_xticks(range(len(domains)), domains)
    n = len(table[0].runs)
    whiskers = f"target domain; whiskers: standard deviation over n = {n} runs" if n > 1 else "target domain; n = 1 run"
    axis.set(xlabel=whiskers, ylabel="accuracy (%)", ylim=(0, 100), title=title)
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
    figure.legend(loc="outside lower center", fontsize=8, ncols=6, frameon=False)
    _save(figure, path)


def cluster_weights(
    records: Mapping[str, Mapping[int, Mapping[str, Any]]], domains: Sequence[str], path: Path, title: str
) -> None:
    """Figure 5: weights v of eq. 8, a row of squares a method, a column a round; clients down, clusters across.

    Args:
        records: method's label to rounds (from 0) to one run's record of the round.
        domains: true domain of each client.
        path: PNG to write.
        title: what was run.
    """
    rounds = sorted({number for found in records.values() for number in found})
    figure = _figure(max(7.0, 1.6 + 3.4 * len(rounds)), 1 + 0.32 * len(domains) * len(records))
    axes = figure.subplots(len(records), len(rounds), squeeze=False)
    for line, (label, found) in zip(axes, records.items(), strict=True):
        for axis, number in zip(line, rounds, strict=True):
            weights = found[number]["weights"]
            axis.imshow(weights, vmin=0, vmax=1, cmap="Blues", aspect="auto")
            for client, row in enumerate(weights):
                for cluster, weight in enumerate(row):
                    dark = "white" if weight > 0.6 else "black"
                    axis.text(cluster, client, f"{weight:.2f}", ha="center", va="center", color=dark, fontsize=7)
            own = cluster_letters(found[number]["labels"])
            axis.set_yticks(range(len(domains)), [f"{name} ({own[k]})" for k, name in enumerate(domains)], fontsize=7)
            names = dict(zip(found[number]["labels"], own, strict=True))  # the letters that clients have beside them
            axis.set_xticks(range(len(weights[0])), [names.get(c, str(c)) for c in range(len(weights[0]))])
            axis.set(title=f"{label}, r = {number}", xlabel="cluster")
    figure.suptitle(title)
    _save(figure, path)


def images_by_cluster(
    images: Sequence[Sequence[Any]], labels: Sequence[int], domains: Sequence[str], path: Path, title: str
) -> None:
    """Figure 6: a line a client, ordered by cluster, some of its images side by side.

    Args:
        images: of each client, ``[H, W, 3]`` uint8, the same number for all.
        labels: cluster of each client.
        domains: true domain of each client.
        path: PNG to write.
        title: what was run.
    """
    order = sorted(range(len(labels)), key=lambda client: labels[client])
    across, named = len(images[0]), cluster_letters(labels)
    figure = _figure(2.4 + 0.5 * across, 0.6 + 0.5 * len(order))
    axes = figure.subplots(len(order), across, squeeze=False)
    for line, client in zip(axes, order, strict=True):
        for axis, image in zip(line, images[client], strict=True):
            axis.imshow(image, interpolation="nearest")
            axis.set(xticks=[], yticks=[], frame_on=False)
        about = f"cluster {named[client]}: client {client + 1}, {domains[client]}"
        line[0].set_ylabel(about, rotation=0, ha="right", va="center", fontsize=8)
    figure.suptitle(title)
    _save(figure, path)
