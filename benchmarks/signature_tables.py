"""The tables of `signatures.py` in docs/internals/measured-methods.md; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from readings import apart, noted
from sklearn.metrics import adjusted_rand_score

from fedwca.reproduce.definitions import definition, published_table
from fedwca.results.statistics import paired_difference
from fedwca.results.tables import MISSING, Table, mean_cell

RESULT = Path(__file__).resolve().parent / "results" / "signatures.json"
NAMES = {"digit_five": "Digit-Five", "pacs": "PACS"}
NOTHING = "Not measured yet: `python benchmarks/signatures.py`."
PAPER, UPDATE, LENGTH = "first layer", "first layer, update", "first layer, update, by length"
USUAL = {"epochs": 5, "side": 64}
"""Epochs of round 0, and image side of PACS in pixels, of most pieces."""
BINS = (-1.0, 0.4, 0.5, 0.6, 1.0)
"""Bounds of the rows of the table of agreement: mean cosine of updates within a domain."""

Piece = Mapping[str, Any]
Cell = tuple[str, int, float]
"""Data set, images per client, learning rate."""


def finished(usual: bool = True) -> list[Piece]:
    """Finished pieces with the values of `USUAL`; with ``usual=False`` those with longer rounds or larger images."""
    pieces = json.loads(RESULT.read_text())["pieces"] if RESULT.exists() else []
    pieces = [USUAL | piece for piece in pieces]
    return [piece for piece in pieces if (piece.items() >= USUAL.items()) == usual]


def cell_of(piece: Piece) -> Cell:
    return piece["dataset"], piece["images"], piece["lr"]


def cells(pieces: Sequence[Piece]) -> list[Cell]:
    """The cells that pieces belong to; within a data set, more images and then larger learning rates come first."""
    return sorted({cell_of(piece) for piece in pieces}, key=lambda cell: (cell[0], -cell[1], -cell[2]))


def at_the_end(piece: Piece) -> dict[str, float]:
    """Adjusted Rand index (ARI) by signature after the round."""
    ari = {name: points[-1][0] for name, points in piece["trained"].items()}
    return {**ari, **{name: point[0] for name, point in piece["moments"].items()}}


def by_run(pieces: Sequence[Piece], signature: str, cell: Cell) -> dict[tuple[str, int], float]:
    """ARI after the round by source and seed."""
    return {
        (piece["source"], piece["seed"]): at_the_end(piece)[signature] for piece in pieces if cell_of(piece) == cell
    }


def shown(pieces: Sequence[Piece]) -> list[str]:
    """Signatures that have a row: all but `LENGTH`, since updates are as far apart as raw weights."""
    return [name for name in at_the_end(pieces[0]) if name != LENGTH]


def head(cell: Cell) -> str:
    dataset, images, lr = cell
    return f"{NAMES[dataset]}, {images} images, rate {lr:g}"


def machines(pieces: Sequence[Piece]) -> str:
    """The processors that pieces were measured on."""
    return " and ".join(sorted({piece["cpu"] for piece in pieces}))


def ends() -> str:
    """Mean ARI after round 0: one row per signature, one column per data set, number of images and learning rate."""
    pieces = finished()
    if not pieces:
        return NOTHING
    columns = cells(pieces)
    rows = [
        [name, *(mean_cell(statistics.fmean(by_run(pieces, name, cell).values()), digits=2) for cell in columns)]
        for name in shown(pieces)
    ]
    counts = ", ".join(str(len(by_run(pieces, PAPER, cell))) for cell in columns)
    sources = {name: {piece["source"]: None for piece in pieces if piece["dataset"] == name} for name in NAMES}
    source_lists = "; ".join(
        f"{NAMES[name]}: sources {', '.join(domains)}" for name, domains in sources.items() if domains
    )
    notes = [
        "Adjusted Rand index of FINCH's finest clusters against the true domains after the 5 epochs of round 0, mean",
        f"over sources and source models (in the order of the columns {counts}). {source_lists}.",
        f"`benchmarks/signatures.py` on {machines(pieces)}; settings and seeds: `benchmarks/results/signatures.json`.",
    ]
    return noted(Table("", ("signature", *map(head, columns)), rows), notes)


def paired() -> str:
    """One row per base and cell: signatures minus the base, which is the paper's signature or its update."""
    pieces = finished()
    compared = [cell for cell in cells(pieces) if len(by_run(pieces, PAPER, cell)) > 1]
    if not compared:
        return NOTHING
    columns = [name for name in shown(pieces) if name != PAPER]
    rows = []
    for base in (PAPER, UPDATE):
        for cell in compared:
            values = (
                None if name == base else [by_run(pieces, signature, cell) for signature in (name, base)]
                for name in columns
            )
            rows.append(
                [head(cell), base, *("" if pair is None else apart(paired_difference(*pair)) for pair in values)]
            )
    notes = [
        "Differences of the adjusted Rand index, paired by source and source model, with their 95 % interval",
        "(Student's t) and n; **bold** where the interval excludes 0. After the 5 epochs of round 0.",
        f"On {machines([piece for piece in pieces if cell_of(piece) in compared])}.",
    ]
    return noted(Table("", ("", "minus", *columns), rows, heads=2), notes)


def looks(pieces: Sequence[Piece]) -> Iterator[tuple[float, float, float]]:
    """Yield how alike the updates of first layers are and which clusters result, per piece and number of steps.

    Each value is (mean cosine of updates within domains, ARI of raw first layers, ARI of their updates).
    """
    for piece in pieces:
        for index, update in enumerate(piece["updates"]):
            yield update["within"], *(piece["trained"][name][index][0] for name in (PAPER, UPDATE))


def agreement() -> str:
    """One row per bin of the cosine of updates within domains: mean ARI of raw weights and of updates."""
    pieces = finished()
    if not pieces:
        return NOTHING
    all_looks, rows = list(looks(pieces)), []
    for low, high in pairwise(BINS):
        bin_looks = [look for look in all_looks if low <= look[0] < high]
        if bin_looks:
            raw, update = (mean_cell(statistics.fmean(look[index] for look in bin_looks), digits=2) for index in (1, 2))
            rows.append(
                [f"{low:g} to {high:g}" if low > BINS[0] else f"below {high:g}", f"{len(bin_looks)}", raw, update]
            )
    curve_pairs = [(piece["trained"][PAPER], piece["trained"][LENGTH]) for piece in pieces]
    equal = [a == b for raw, by_length in curve_pairs for a, b in zip(raw, by_length, strict=True)]
    notes = [
        "Mean cosine between first layers' updates of two clients of a domain; looks after 1, 4 and 16 steps and at",
        "the end of round 0, over the pieces of 5 epochs and 64 pixels. Raw weights by cosine and updates by distance:",
        f"the same index in {sum(equal)} of {len(equal)} looks. On {machines(pieces)}.",
    ]
    return noted(Table("", ("cosine within domains", "looks", "ARI of raw weights", "ARI of updates"), rows), notes)


def beyond() -> str:
    """One row per piece of PACS and number of steps, for rounds ten times as long or larger images."""
    pieces = finished(usual=False)
    rows = [
        [
            piece["source"],
            str(piece["side"]),
            f"{piece['lr']:g}",
            str(piece["epochs"]),
            str(steps),
            *(
                mean_cell(value, digits=2)
                for value in (
                    piece["updates"][index]["within"],
                    piece["updates"][index]["between"],
                    *(piece["trained"][name][index][0] for name in (PAPER, UPDATE, "all layers, update")),
                )
            ),
        ]
        for piece in pieces
        for index, steps in enumerate(piece["after_steps"])
    ]
    if not rows:
        return NOTHING
    ari_heads = ("ARI, first layer", "its update", "all layers' update")
    heads = ("source", "pixels", "rate", "epochs", "steps", "cosine within domains", "between", *ari_heads)
    notes = [
        f"PACS, ResNet-18, {pieces[0]['images']} images a client, round 0, one source model; cosines of first layers'",
        f"updates. The files have 128 pixels. {machines(pieces)}.",
    ]
    return noted(Table("", heads, rows, heads=5), notes)


def layers() -> str:
    """Table 11 of the paper: one row per layer, with its ARI in the paper and after our round 0."""
    pieces = [piece for piece in finished() if "layers" in piece and piece["images"] == 256]
    printed = published_table("table11", "pacs")
    if not pieces or printed is None:
        return NOTHING
    truth = [client // 3 for client in range(9)]
    rows = []
    for layer, name in definition("table11").signatures.items():
        ari = adjusted_rand_score(truth, list(printed.clusters[layer]))
        ours = [piece["layers"][reference].get(str(name)) for piece in pieces for reference in ("none", "source")]
        rows.append(
            [
                layer,
                mean_cell(float(ari), digits=2),
                *(f"{point[0]:.2f} ({point[1]})" if point else MISSING for point in ours),
            ]
        )
    heads = [
        f"{piece['source']}, rate {piece['lr']:g}: {reference}" for piece in pieces for reference in ("raw", "update")
    ]
    printed_in = f"Printed: {printed.where}, source art_painting, its clusters' index."
    notes = [
        "Adjusted Rand index and, in brackets, the number of clusters of nine clients; ResNet-18 at 64 pixels, 256",
        f"images a client, after the 5 epochs of round 0, one source model. {printed_in}",
        f"On {machines(pieces)}.",
    ]
    return noted(Table("", ("layer", "printed", *heads), rows), notes)


BLOCKS: dict[str, Callable[[], str]] = {
    "signatures": ends,
    "signatures-paired": paired,
    "signatures-agreement": agreement,
    "signatures-layers": layers,
    "signatures-beyond": beyond,
}
