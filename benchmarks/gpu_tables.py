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
KERNELS = ("eager", "channels-last", "graphs")
ROUNDS = 100
"""Rounds of a run at the paper's size."""
WAYS = ("loop", "stacked eager", "stacked channels-last", "stacked graphs")


def read(name: str) -> dict[str, Any]:
    """The result of a piece of gpu.py."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def made(*results: Mapping[str, Any]) -> str:
    """What pieces were measured on, in order: devices and torch versions, each once, and the command."""
    environments = (result["environment"] for result in results)
    places = (f"{environment['device']}, torch {environment['versions']['torch']}" for environment in environments)
    return f"{'; '.join(dict.fromkeys(places))} (`python benchmarks/gpu.py`)"


def engines() -> str:
    """Table with a row per model and precision: seconds of a FedWCA round of one epoch by engine and kernels."""
    result, lines = read("engines"), []
    measured_ways = [
        way
        for entry in result["models"].values()
        for measured in entry["precisions"].values()
        for way in measured["seconds"]
    ]
    ways = [way for way in WAYS if way in measured_ways]
    for model, entry in result["models"].items():
        for precision, measured in entry["precisions"].items():
            seconds = {way: statistics.median(values) for way, values in measured["seconds"].items()}
            cells = [f"{seconds[way]:.2f}" if way in seconds else "" for way in ways]
            lines.append([model, f"{entry['clients']} × {entry['images']}", precision, *cells])
    heads = ("model", "clients × images", "precision", *(f"{way}, s" for way in ways))
    note = "A FedWCA round of one epoch, medians of two; graphs where a few steps in them were the quickest."
    return noted(Table("", heads, lines, heads=3), [note, f"{made(result)}."])


def digit_five() -> str:
    """Table with a row per precision: a round of Digit-Five at the paper's size, alone and as fifteen trials."""
    alone, together = read("digit_five"), read("trials")
    lines = []
    for precision, entry in alone["precisions"].items():
        trial_entry = together["precisions"][precision]
        seconds = statistics.median(entry["seconds"])
        lines.append(
            [
                precision,
                f"{seconds:.2f}",
                f"{seconds * ROUNDS / 60:.1f}",
                f"{statistics.median(trial_entry['alone_seconds']):.2f}",
                f"{statistics.median(trial_entry['together_seconds']):.1f}",
                f"{trial_entry['times_as_fast']:.2f}",
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
    round_seconds = statistics.median(alone["seconds_a_round"])
    images, cost = sum(alone["images"]), alone["in_fedavg_rounds"]
    notes = [
        f"FedWCA, {alone['clients']} LeNets, {images:,} random images, {alone['epochs']} epochs; medians of two,",
        f"in kernels that a few steps chose; in {chosen}, twenty rounds: {round_seconds:.2f} s each, peak "
        f"{alone['peak_bytes'] / 2**30:.1f} GiB. A round costs",
        f"{cost['measured']:.2f} of FedAvg's ({cost['formula']} counted in passes).",
        f"{made(alone, together)}.",
    ]
    return noted(Table("", heads, lines), notes)


def pacs() -> str:
    """Table with a row per precision: milliseconds of a step of PACS at 224 pixels by kernels."""
    result = read("pacs")
    heads = ("precision", *(f"{name}, ms" for name in KERNELS))
    lines = [
        [precision, *(candidate_cells(entry["measured"][name])[0] for name in KERNELS)]
        for precision, entry in result["precisions"].items()
    ]
    stacked, loop = (statistics.median(result[key]) for key in ("seconds_a_round", "seconds_a_round_on_the_loop"))
    cost = result["in_fedavg_rounds"]
    minutes, loop_minutes = result["extrapolated_minutes_of_100_rounds"], loop * ROUNDS / 60
    notes = [
        f"A step of {result['clients']} ResNet-18 at 224 pixels, 64 random images each. A FedWCA round of "
        f"{result['epochs']} epochs with {result['images'][0]} images a client, one",
        f"round measured: in {result['chosen']} {stacked:.1f} s, peak {result['peak_bytes'] / 2**30:.0f} GiB, on the "
        f"loop engine {loop:.1f} s. A hundred rounds take {minutes:.0f} and {loop_minutes:.0f}",
        f"minutes (goal: {result['target_minutes']:.0f}). A round costs {cost['measured']:.2f} of FedAvg's "
        f"({cost['formula']} counted in passes).",
        f"{made(result)}.",
    ]
    return noted(Table("", heads, lines), notes)


def candidate_cells(candidate: Mapping[str, Any]) -> tuple[str, str]:
    """Milliseconds of a step and the distance of its gradient, as text."""
    return (
        ("failed", "") if "error" in candidate else (f"{1000 * candidate['seconds']:.1f}", f"{candidate['apart']:.0e}")
    )


def kernels() -> str:
    """Table with a row per model and precision: milliseconds of a step and gradient errors by kernels."""
    result, lines = read("kernels"), []
    for model, entry in result["models"].items():
        for precision, measured in entry["precisions"].items():
            cells = [cell for name in KERNELS for cell in candidate_cells(measured["candidates"][name])]
            lines.append([model, f"{entry['clients']} × {entry['batch']}", precision, *cells, measured["best"]])
    names = [head for name in KERNELS for head in (f"{name}, ms", "apart")]
    heads = ("model", "clients × images", "precision", *names, "taken")
    note = "A step with places for mixed images; *apart*: distance of a gradient from that in float64, by its norm."
    return noted(Table("", heads, lines, heads=3), [note, f"{made(result)}."])


BLOCKS: dict[str, Callable[[], str]] = {
    "gpu-engines": engines,
    "gpu-digit_five": digit_five,
    "gpu-pacs": pacs,
    "gpu-kernels": kernels,
}
