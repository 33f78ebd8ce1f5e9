"""The picture of `signatures.py`: when clusters find domains; no script."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from signature_tables import NAMES, PAPER, UPDATE, Cell, Piece, at_the_end, by_run, cell_of, looks

from fedwca.results.pictures import style

DRAWN = (PAPER, UPDATE, "all layers, update", "BatchNorm statistics", "moments")
LOOKS = dict(zip(DRAWN, [style.OWN, *(style.COLOURS[place] for place in (1, 3, 4, 6))], strict=True))
TITLE = "When FINCH finds the clients' domains after round 0, by what it is shown"


def draw(pieces: Sequence[Piece], file: Path) -> None:
    """Draw the adjusted Rand index over steps for each learning rate, over images, and over how alike updates are."""
    figure = style.figure(11, 6.6, TITLE)
    axes = figure.subplots(2, 3, sharey=True)
    digits = [("digit_five", 256, lr) for lr in (0.003, 0.001, 0.0003)]
    for axis, cell in zip((*axes[0], axes[1, 0]), (*digits, ("pacs", 256, 0.001)), strict=True):
        draw_steps(axis, [piece for piece in pieces if cell_of(piece) == cell], cell)
    draw_images(axes[1, 1], [piece for piece in pieces if piece["dataset"] == "digit_five" and piece["lr"] == 0.001])
    draw_agreement(axes[1, 2], pieces)
    for axis in axes.flat:
        axis.set_ylim(-0.08, 1.05)
        style.remove_frame(axis)
    for axis in axes[:, 0]:
        axis.set_ylabel("adjusted Rand index")
    style.legend(figure, axes[0, 0], len(DRAWN))
    style.save(figure, file, dpi=100)


def line(axis: Any, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    """Draw a signature's line; that of moments, which need no training, is dashed."""
    dashed = "--" if name == "moments" else "-"
    marker = style.MARKERS[DRAWN.index(name)]
    axis.plot(x, y, dashed, marker=marker, color=LOOKS[name], label=name, markersize=4.5, linewidth=1.8)


def draw_steps(axis: Any, pieces: Sequence[Piece], cell: Cell) -> None:
    """Draw the mean over sources and source models over steps of training; the last point is the end of the round."""
    dataset, images, lr = cell
    axis.set_title(f"{NAMES[dataset]}, {images} images, rate {lr:g}, n = {len(pieces)}", fontsize=9)
    if not pieces:
        leave_out(axis)
        return
    axis.set(xscale="log", xlabel="steps of training, to the end of round 0")
    steps = pieces[0]["after_steps"]
    axis.set_xticks(steps, [str(step) if step != 16 else "" for step in steps])
    axis.minorticks_off()
    for name in DRAWN:
        curves = [
            [point[0] for point in piece["trained"][name]] if name in piece["trained"] else moments(piece)
            for piece in pieces
        ]
        line(axis, name, steps, [statistics.fmean(values) for values in zip(*curves, strict=True)])


def leave_out(axis: Any) -> None:
    """Mark a panel as not measured yet."""
    axis.text(0.5, 0.5, "not measured yet", ha="center", va="center", transform=axis.transAxes, color="#666666")
    axis.set_xticks([])


def moments(piece: Piece) -> list[float]:
    """Adjusted Rand index of moments after each number of steps; always the same, since no step changes them."""
    return [piece["moments"]["moments"][0]] * len(piece["after_steps"])


def draw_images(axis: Any, pieces: Sequence[Piece]) -> None:
    """Draw the end of the round over images per client, as means over the runs that have all numbers of images."""
    axis.set_title("Digit-Five, end of round 0, rate 0.001", fontsize=9)
    sizes = sorted({piece["images"] for piece in pieces})
    if len(sizes) < 2:
        leave_out(axis)
        return
    axis.set(xscale="log", xlabel="training images a client")
    shared_runs = set.intersection(*(set(by_run(pieces, PAPER, ("digit_five", size, 0.001))) for size in sizes))
    selected = [piece for piece in pieces if (piece["source"], piece["seed"]) in shared_runs]
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    for name in DRAWN:
        values = [[at_the_end(piece)[name] for piece in selected if piece["images"] == size] for size in sizes]
        line(axis, name, sizes, [statistics.fmean(sample) for sample in values if sample])


def draw_agreement(axis: Any, pieces: Sequence[Piece]) -> None:
    """Draw one point per piece and number of steps: cosine of updates within domains, and the index of raw weights."""
    axis.set_title("raw first layers after 1, 4, 16 and all steps", fontsize=9)
    axis.set_xlabel("cosine of updates within domains")
    for index, dataset in enumerate(NAMES):
        x, y = [], []
        for within, raw, _ in looks([piece for piece in pieces if piece["dataset"] == dataset]):
            x.append(within)
            y.append(raw)
        axis.scatter(x, y, s=14, alpha=0.6, color=LOOKS[DRAWN[3 * index]], marker="o^"[index], label=NAMES[dataset])
    axis.axvline(0.5, color="#666666", linewidth=1, linestyle=":")
    axis.legend(fontsize=8, frameon=False, loc="upper left")
