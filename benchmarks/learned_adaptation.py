"""Where an adaptation that is learned (FedTTA) is worth its dearer training, over class skew and images a client.

A cell is an alpha of the partition `dirichlet` (class proportions are drawn per client, all clients have equally many
images) and a number of images per client. FedTTA trains for --rounds rounds; TENT for as many, and for four times as
many, which cost about as much as FedTTA's. FedAvg is TENT's model before its adaptation step. Accuracy is that of the
round with the best accuracy on training clients' validation images, within those rounds. ``python
benchmarks/learned_adaptation.py --data ../shared/data/digit_five`` runs the cells that are not done yet. One cell with
more rounds: ``--alpha 0.1 --images 60 --rounds 150 --out FILE --runs FOLDER``, which draws no picture.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from keep import keep, refuse_rehearsal
from provenance import measured_on, provenance

from fedwca import bench
from fedwca.results.read_run import read_run
from fedwca.results.shown_records import is_best_so_far
from fedwca.results.statistics import paired_difference

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "upfl" / "learned_adaptation.json"
ALPHAS = (0.03, 0.1, 0.5)
IMAGES = (20, 60, 200)
SEEDS = 3
ROUNDS, DEARER = 20, 4
"""Rounds of FedTTA, and how many times as many TENT may train for about the same cost."""
CLIENTS = 10
SETTINGS: dict[str, Any] = {"preset": "upfl", "dataset": "mnist", "clients": CLIENTS, "source_models": SEEDS}
OVERRIDES = {"training.steps": 10, "training.batch_size": 32, "training.lr": 0.1}


def run_cell(alpha: float, images: int, data: Path, runs: Path, rounds: int) -> dict[str, Any]:
    """New clients' accuracy in percent by method, one value per seed, and the median seconds of a round."""
    result: dict[str, Any] = {"alpha": alpha, "images": images, "accuracy": {}, "seconds": {}}
    records_by_seed: dict[str, list[list[dict[str, Any]]]] = {}
    for method, method_rounds in (("tent", DEARER * rounds), ("fedtta", rounds)):
        folder = runs / f"alpha{alpha:g}-images{images}-{method}"
        bench(
            out=folder,
            resume=True,
            keep="none",
            overrides={**OVERRIDES, "partition.dirichlet.alpha": alpha, "partition.dirichlet.by": "client"},
            **SETTINGS,
            partition="dirichlet",
            composed=False,
            data=str(data),
            samples=images,
            rounds=method_rounds,
            baselines=[method],
        )
        run = read_run(folder)
        if run.diverged:
            raise SystemExit(f"{folder}: {method} diverged, and an earlier round is no result")
        records = [r for r in run.rounds(method) if r["round"] >= 0]
        records_by_seed[method] = [[r for r in records if r["source_model"] == seed] for seed in range(SEEDS)]
        result["seconds"][method] = float(np.median([r["seconds"]["round"] for r in records]))
    accuracy = {
        "FedAvg": [before(run[:rounds]) for run in records_by_seed["tent"]],
        "TENT": [after(run[:rounds]) for run in records_by_seed["tent"]],
        f"TENT, {DEARER} times the rounds": [after(run) for run in records_by_seed["tent"]],
        "FedTTA": [after(run) for run in records_by_seed["fedtta"]],
    }
    result["accuracy"] = accuracy
    return result


def after(records: list[dict[str, Any]]) -> float:
    """New clients' accuracy after adaptation, in the round with the best validation accuracy, the last one if tied."""
    return chosen([(mean(r["accuracy_validation"]), mean(r["accuracy"])) for r in records])


def before(records: list[dict[str, Any]]) -> float:
    """New clients' accuracy before adaptation, in the round with the best validation accuracy before adaptation."""
    accuracy_by_round = [r["adaptation"]["accuracy_before"] for r in records]
    return chosen([(mean(accuracy[:CLIENTS]), mean(accuracy[CLIENTS:])) for accuracy in accuracy_by_round])


def chosen(pairs: list[tuple[float, float]]) -> float:
    """The second value of the pair with the largest first value, the last such pair if several tie.

    >>> chosen([(1.0, 5.0), (2.0, 6.0), (2.0, 7.0)])
    7.0
    """
    best, value = None, math.nan
    for validation, accuracy in pairs:
        if is_best_so_far(validation, best):  # sums that differ by rounding are equal, as in tables of runs
            best, value = validation, accuracy
    return value


def mean(values: list[float | None]) -> float:
    """Mean over the clients that have a value."""
    return float(np.nanmean(np.asarray(values, dtype=float)))


def picture(cells: list[dict[str, Any]], path: Path) -> None:
    """Draw FedTTA minus TENT with the same number of rounds, and with four times as many, over alpha and images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    baselines = ("TENT", f"TENT, {DEARER} times the rounds")
    alphas, images = (sorted({c[key] for c in cells}) for key in ("alpha", "images"))
    axes = figure.subplots(1, 2, sharey=True)
    for panel, baseline in zip(axes, baselines, strict=True):
        values = np.full((len(images), len(alphas)), np.nan)
        for cell in cells:
            position = images.index(cell["images"]), alphas.index(cell["alpha"])
            gain = difference(cell, baseline)
            values[position] = gain["mean"]
            significant = gain["low"] > 0 or gain["high"] < 0
            text = f"{gain['mean']:+.1f}" + ("*" if significant else "")
            ink = "white" if abs(gain["mean"]) > 10 else "black"
            panel.text(position[1], position[0], text, ha="center", va="center", fontsize=10, color=ink)
        heatmap = panel.imshow(values, cmap="RdBu", vmin=-15, vmax=15, aspect="auto", origin="lower")
        panel.set_xticks(range(len(alphas)), [f"{a:g}" for a in alphas])
        panel.set_yticks(range(len(images)), [str(i) for i in images])
        panel.set(xlabel="alpha of the classes (left: most skewed)", title=f"FedTTA − {baseline}", ylabel="")
    axes[0].set_ylabel("images a client")
    figure.colorbar(heatmap, ax=axes, label="points, new clients")
    figure.savefig(path, dpi=110)


def difference(cell: dict[str, Any], baseline: str) -> dict[str, Any]:
    """FedTTA minus a baseline, paired by seed, with Student's t interval at 95 %."""
    fedtta_accuracy, baseline_accuracy = (dict(enumerate(cell["accuracy"][name])) for name in ("FedTTA", baseline))
    gain = paired_difference(fedtta_accuracy, baseline_accuracy)
    assert gain is not None
    return asdict(gain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/digit_five"), help="folder with mnist.npz")
    parser.add_argument("--runs", type=Path, default=Path("runs/learned_adaptation"), help="where run folders are")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "learned-adaptation.png")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of FedTTA")
    parser.add_argument("--alpha", type=float, action="append", help="these alone")
    parser.add_argument("--images", type=int, action="append", help="these alone")
    options = parser.parse_args()
    refuse_rehearsal(parser, options, "alpha", "images", "rounds")
    saved = json.loads(options.out.read_text()) if options.out.exists() else {"rounds": options.rounds, "cells": []}
    if saved["rounds"] != options.rounds:
        parser.error(f"{options.out} is of {saved['rounds']} rounds; give another --out")
    cells_by_setting = {(cell["alpha"], cell["images"]): cell for cell in saved["cells"]}
    environment, own = measured_on(provenance("cpu"), saved["environment"] if cells_by_setting else None)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for images in options.images or IMAGES:
        for alpha in options.alpha or ALPHAS:
            if (alpha, images) not in cells_by_setting:
                cell = run_cell(alpha, images, options.data, options.runs, options.rounds)
                cells_by_setting[alpha, images] = cell | own
                print(json.dumps(cells_by_setting[alpha, images]["accuracy"]), flush=True)
            cells = list(cells_by_setting.values())
            header = {"rounds": options.rounds, "seeds": SEEDS, "settings": SETTINGS, "overrides": OVERRIDES}
            for cell in cells:
                cell["differences"] = {name: difference(cell, name) for name in cell["accuracy"] if name != "FedTTA"}
            keep(options.out, {**header, "environment": environment, "cells": cells})
    if options.out == RESULT:
        picture(list(cells_by_setting.values()), options.picture)


if __name__ == "__main__":
    main()
