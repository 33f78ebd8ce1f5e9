"""The tables of `gpu.py` in docs/engines.md and docs/internals/engines.md; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from readings import noted

from fedwca.results.tables import Table

RESULTS = Path(__file__).resolve().parent / "results" / "gpu"
WAYS = ("loop", "stacked eager", "stacked channels-last", "stacked graphs")


def read(name: str) -> dict[str, Any]:
    """What a piece of gpu.py found."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def made(found: Mapping[str, Any]) -> str:
    """On what a piece was measured."""
    environment = found["environment"]
    return f"{environment['device']}, torch {environment['versions']['torch']} (`python benchmarks/gpu.py`)"


def engines() -> str:
    """A row a model and precision: seconds of a FedWCA round of one epoch by engine and kernels."""
    found, lines = read("engines"), []
    every = [way for own in found["models"].values() for each in own["precisions"].values() for way in each["seconds"]]
    ways = [way for way in WAYS if way in every]
    for model, own in found["models"].items():
        for precision, measured in own["precisions"].items():
            seconds = {way: statistics.median(some) for way, some in measured["seconds"].items()}
            cells = [f"{seconds[way]:.2f}" if way in seconds else "" for way in ways]
            lines.append([model, f"{own['clients']} × {own['images']}", precision, *cells])
    heads = ("model", "clients × images", "precision", *(f"{way}, s" for way in ways))
    told = "A FedWCA round of one epoch, medians of two; graphs where a few steps in them were the quickest."
    return noted(Table("", heads, lines, heads=3), [told, f"{made(found)}."])


def digit_five() -> str:
    """A row a precision: a round of Digit-Five at the paper's size, alone and as fifteen trials."""
    alone, together = read("digit_five"), read("trials")
    lines = []
    for precision, own in alone["precisions"].items():
        more = together["precisions"][precision]
        seconds = statistics.median(own["seconds"])
        lines.append(
            [
                precision,
                f"{seconds:.2f}",
                f"{seconds * 100 / 60:.1f}",
                f"{statistics.median(more['alone_seconds']):.2f}",
                f"{statistics.median(more['together_seconds']):.1f}",
                f"{more['times_as_fast']:.2f}",
            ]
        )
    heads = (
        "precision",
        "round, s",
        "100 rounds, min",
        "again, beside trials, s",
        "15 trials together, s",
        "times as fast as in turn",
    )
    chosen = alone["chosen"]
    kept = statistics.median(alone["seconds_a_round"])
    images, price = sum(alone["images"]), alone["in_fedavg_rounds"]
    notes = [
        f"FedWCA, {alone['clients']} LeNets, {images:,} random images, {alone['epochs']} epochs; medians of two,",
        f"in kernels that a few steps chose; in {chosen}, twenty rounds: {kept:.2f} s each, peak "
        f"{alone['peak_bytes'] / 2**30:.1f} GiB. A round costs",
        f"{price['measured']:.2f} of FedAvg's ({price['formula']} counted in passes).",
        f"{made(alone)}.",
    ]
    return noted(Table("", heads, lines), notes)


def candidate_cells(own: Mapping[str, Any]) -> tuple[str, str]:
    """Milliseconds of a step and the distance of its gradient."""
    return ("failed", "") if "error" in own else (f"{1000 * own['seconds']:.1f}", f"{own['apart']:.0e}")


def kernels() -> str:
    """A row a model and precision: milliseconds of a training step by kernels, and how far gradients are off."""
    found, lines = read("kernels"), []
    for model, own in found["models"].items():
        for precision, tried in own["precisions"].items():
            cells = [
                cell
                for name in ("eager", "channels-last", "graphs")
                for cell in candidate_cells(tried["candidates"][name])
            ]
            lines.append([model, f"{own['clients']} × {own['batch']}", precision, *cells, tried["best"]])
    names = [head for name in ("eager", "channels-last", "graphs") for head in (f"{name}, ms", "apart")]
    heads = ("model", "clients × images", "precision", *names, "taken")
    told = "A step with places for mixed images; *apart*: distance of a gradient from that in float64, by its norm."
    return noted(Table("", heads, lines, heads=3), [told, f"{made(found)}."])


BLOCKS: dict[str, Callable[[], str]] = {
    "gpu-engines": engines,
    "gpu-digit_five": digit_five,
    "gpu-kernels": kernels,
}
