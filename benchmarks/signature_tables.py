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
"""Of a round, and pixels of PACS."""
BINS = (-1.0, 0.4, 0.5, 0.6, 1.0)
"""Cosines of updates within a domain, between which rows of the table of agreement are."""

Piece = Mapping[str, Any]
Cell = tuple[str, int, float]
"""Data set, images a client, learning rate."""


def finished(usual: bool = True) -> list[Piece]:
    """Pieces that are done: of the usual length and size, or of longer rounds and larger images."""
    every = json.loads(RESULT.read_text())["pieces"] if RESULT.exists() else []
    every = [USUAL | piece for piece in every]
    return [piece for piece in every if (piece.items() >= USUAL.items()) == usual]


def cell_of(piece: Piece) -> Cell:
    return piece["dataset"], piece["images"], piece["lr"]


def cells(found: Sequence[Piece]) -> list[Cell]:
    """What there is, larger data sets of pieces first."""
    return sorted({cell_of(piece) for piece in found}, key=lambda cell: (cell[0], -cell[1], -cell[2]))


def at_the_end(piece: Piece) -> dict[str, float]:
    """ARI by signature after the round."""
    after = {name: points[-1][0] for name, points in piece["trained"].items()}
    return {**after, **{name: point[0] for name, point in piece["moments"].items()}}


def by_run(found: Sequence[Piece], signature: str, cell: Cell) -> dict[tuple[str, int], float]:
    """ARI after the round by source and seed."""
    return {(p["source"], p["seed"]): at_the_end(p)[signature] for p in found if cell_of(p) == cell}


def shown(found: Sequence[Piece]) -> list[str]:
    """Signatures that have a row: by length the update is the raw weights."""
    return [name for name in at_the_end(found[0]) if name != LENGTH]


def head(cell: Cell) -> str:
    dataset, images, lr = cell
    return f"{NAMES[dataset]}, {images} images, rate {lr:g}"


def machines(found: Sequence[Piece]) -> str:
    """On what pieces were measured."""
    return " and ".join(sorted({piece["cpu"] for piece in found}))


def ends() -> str:
    """Mean ARI after round 0: a row a signature, a column for each data set, number of images and learning rate."""
    found = finished()
    if not found:
        return NOTHING
    columns = cells(found)
    rows = [
        [name, *(mean_cell(statistics.fmean(by_run(found, name, cell).values()), digits=2) for cell in columns)]
        for name in shown(found)
    ]
    counts = ", ".join(str(len(by_run(found, PAPER, cell))) for cell in columns)
    sources = {name: {p["source"]: None for p in found if p["dataset"] == name} for name in NAMES}
    said = "; ".join(f"{NAMES[name]}: sources {', '.join(own)}" for name, own in sources.items() if own)
    notes = [
        "Adjusted Rand index of FINCH's finest clusters against the true domains after the 5 epochs of round 0, mean",
        f"over sources and source models (in the order of the columns {counts}). {said}.",
        f"`benchmarks/signatures.py` on {machines(found)}; settings and seeds: `benchmarks/results/signatures.json`.",
    ]
    return noted(Table("", ("signature", *map(head, columns)), rows), notes)


def paired() -> str:
    """A row for each data set, number of images and rate: signatures minus the paper's, and minus its update."""
    found = finished()
    compared = [cell for cell in cells(found) if len(by_run(found, PAPER, cell)) > 1]
    if not compared:
        return NOTHING
    columns = [name for name in shown(found) if name != PAPER]
    rows = []
    for base in (PAPER, UPDATE):
        for cell in compared:
            values = (
                None if name == base else [by_run(found, which, cell) for which in (name, base)] for name in columns
            )
            rows.append([head(cell), base, *("" if own is None else apart(paired_difference(*own)) for own in values)])
    notes = [
        "Differences of the adjusted Rand index, paired by source and source model, with their 95 % interval",
        "(Student's t) and n; **bold** where the interval excludes 0. After the 5 epochs of round 0.",
        f"On {machines([piece for piece in found if cell_of(piece) in compared])}.",
    ]
    table = noted(Table("", ("", "minus", *columns), rows, heads=2), notes)
    return table.replace(r"\*\*", "**")  # what is bold in a cell is so on purpose


def looks(found: Sequence[Piece]) -> Iterator[tuple[float, float, float]]:
    """Of each look at clients: cosine of first layers' updates within domains, ARI of raw weights, ARI of updates."""
    for piece in found:
        for place, update in enumerate(piece["updates"]):
            yield update["within"], *(piece["trained"][name][place][0] for name in (PAPER, UPDATE))


def agreement() -> str:
    """What the clusters of raw weights need: clients of a domain that move alike."""
    found = finished()
    if not found:
        return NOTHING
    every, rows = list(looks(found)), []
    for low, high in pairwise(BINS):
        own = [look for look in every if low <= look[0] < high]
        if own:
            raw, update = (mean_cell(statistics.fmean(look[place] for look in own), digits=2) for place in (1, 2))
            rows.append([f"{low:g} to {high:g}" if low > BINS[0] else f"below {high:g}", f"{len(own)}", raw, update])
    points = [(p["trained"][PAPER], p["trained"][LENGTH]) for p in found]
    same = [a == b for raw, length in points for a, b in zip(raw, length, strict=True)]
    notes = [
        "Mean cosine between first layers' updates of two clients of a domain; looks after 1, 4 and 16 steps and at",
        "the end of round 0, over all pieces. Raw weights by cosine and updates by distance: the same index in",
        f"{sum(same)} of {len(same)} looks. On {machines(found)}.",
    ]
    return noted(Table("", ("cosine within domains", "looks", "ARI of raw weights", "ARI of updates"), rows), notes)


def beyond() -> str:
    """A row a piece of PACS and number of steps, in rounds ten times as long, or with larger images."""
    found = finished(usual=False)
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
                    piece["updates"][place]["within"],
                    piece["updates"][place]["between"],
                    *(piece["trained"][name][place][0] for name in (PAPER, UPDATE, "all layers, update")),
                )
            ),
        ]
        for piece in found
        for place, steps in enumerate(piece["after_steps"])
    ]
    if not rows:
        return NOTHING
    of = ("ARI, first layer", "its update", "all layers' update")
    heads = ("source", "pixels", "rate", "epochs", "steps", "cosine within domains", "between", *of)
    notes = [
        f"PACS, ResNet-18, {found[0]['images']} images a client, round 0, one source model; cosines of first layers'",
        f"updates. The files have 128 pixels. {machines(found)}.",
    ]
    return noted(Table("", heads, rows, heads=5), notes)


def layers() -> str:
    """Table 11 of the paper: the ARI of every layer, printed and in our rounds 0."""
    found = [piece for piece in finished() if "layers" in piece and piece["images"] == 256]
    printed = published_table("table11", "pacs")
    if not found or printed is None:
        return NOTHING
    truth = [client // 3 for client in range(9)]
    rows = []
    for layer, name in definition("table11").signatures.items():
        ari = adjusted_rand_score(truth, list(printed.clusters[layer]))
        ours = [piece["layers"][how].get(str(name)) for piece in found for how in ("none", "source")]
        rows.append([layer, mean_cell(float(ari), digits=2), *(f"{o[0]:.2f} ({o[1]})" if o else MISSING for o in ours)])
    heads = [f"{p['source']}, rate {p['lr']:g}: {how}" for p in found for how in ("raw", "update")]
    printed_in = f"Printed: {printed.where}, source art_painting, its clusters' index."
    notes = [
        "Adjusted Rand index and, in brackets, the number of clusters of nine clients; ResNet-18 at 64 pixels, 256",
        f"images a client, after the 5 epochs of round 0, one source model. {printed_in}",
        f"On {machines(found)}.",
    ]
    return noted(Table("", ("layer", "printed", *heads), rows), notes)


BLOCKS: dict[str, Callable[[], str]] = {
    "signatures": ends,
    "signatures-paired": paired,
    "signatures-agreement": agreement,
    "signatures-layers": layers,
    "signatures-beyond": beyond,
}
