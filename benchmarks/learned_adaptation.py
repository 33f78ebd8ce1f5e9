"""Where an adaptation that is learned (FedTTA) is worth its dearer training, over class skew and images a client.

A cell is an alpha of `dirichlet` (each client draws its classes, all have as many images) and a number of images.
FedTTA trains so many rounds; TENT the same rounds, and four times as many, which cost about as much. FedAvg is TENT's
model before its step. The round is chosen by training clients' validation images, within those rounds. A cell that is
done is not run again: ``python benchmarks/learned_adaptation.py --data ../shared/data/digit_five``. One cell with more
rounds: ``--alpha 0.1 --images 60 --rounds 150 --out FILE --runs FOLDER``, without a picture.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from keep import keep
from provenance import provenance

from fedwca import bench
from fedwca.results.read_run import read_run
from fedwca.results.statistics import paired_difference

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "upfl" / "learned_adaptation.json"
ALPHAS = (0.03, 0.1, 0.5)
IMAGES = (20, 60, 200)
SEEDS = 3
ROUNDS, DEARER = 20, 4
CLIENTS = 10
SETTINGS: dict[str, Any] = {"preset": "upfl", "dataset": "mnist", "clients": CLIENTS, "source_models": SEEDS}
OVERRIDES = {"training.steps": 10, "training.batch_size": 32, "training.lr": 0.1}


def run_cell(alpha: float, images: int, data: Path, runs: Path, rounds: int) -> dict[str, Any]:
    """New clients' accuracy in percent by method, one value a seed, and what a round of each costs."""
    found: dict[str, Any] = {"alpha": alpha, "images": images, "accuracy": {}, "seconds": {}}
    lists: dict[str, list[list[dict[str, Any]]]] = {}
    for name, own in (("tent", DEARER * rounds), ("fedtta", rounds)):
        folder = runs / f"alpha{alpha:g}-images{images}-{name}"
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
            rounds=own,
            baselines=[name],
        )
        records = [r for r in read_run(folder).rounds(name) if r["round"] >= 0]
        lists[name] = [[r for r in records if r["source_model"] == seed] for seed in range(SEEDS)]
        found["seconds"][name] = float(np.median([r["seconds"]["round"] for r in records]))
    parts = {
        "FedAvg": [before(run[:rounds]) for run in lists["tent"]],
        "TENT": [after(run[:rounds]) for run in lists["tent"]],
        f"TENT, {DEARER} times the rounds": [after(run) for run in lists["tent"]],
        "FedTTA": [after(run) for run in lists["fedtta"]],
    }
    found["accuracy"] = parts
    return found


def after(records: list[dict[str, Any]]) -> float:
    """New clients' accuracy with the adaptation, in the round that is best on validation images, the last of equals."""
    return chosen([(mean(r["accuracy_validation"]), mean(r["accuracy"])) for r in records])


def before(records: list[dict[str, Any]]) -> float:
    """The same of the models before their step."""
    steps = [r["adaptation"]["accuracy_before"] for r in records]
    return chosen([(mean(step[:CLIENTS]), mean(step[CLIENTS:])) for step in steps])


def chosen(pairs: list[tuple[float, float]]) -> float:
    """The second of the last pair whose first is largest.

    >>> chosen([(1.0, 5.0), (2.0, 6.0), (2.0, 7.0)])
    7.0
    """
    return max(reversed(pairs), key=lambda pair: pair[0])[1]


def mean(values: list[float | None]) -> float:
    """Over the clients that have a value."""
    return float(np.nanmean(np.asarray(values, dtype=float)))


def picture(cells: list[dict[str, Any]], file: Path) -> None:
    """FedTTA minus TENT with as many rounds, and with four times as many, over alpha and images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    rivals = ("TENT", f"TENT, {DEARER} times the rounds")
    alphas, images = (sorted({c[key] for c in cells}) for key in ("alpha", "images"))
    axes = figure.subplots(1, 2, sharey=True)
    for panel, rival in zip(axes, rivals, strict=True):
        values = np.full((len(images), len(alphas)), np.nan)
        for cell in cells:
            at = images.index(cell["images"]), alphas.index(cell["alpha"])
            ahead = difference(cell, rival)
            values[at] = ahead["mean"]
            sure = ahead["low"] > 0 or ahead["high"] < 0
            text = f"{ahead['mean']:+.1f}" + ("*" if sure else "")
            ink = "white" if abs(ahead["mean"]) > 10 else "black"
            panel.text(at[1], at[0], text, ha="center", va="center", fontsize=10, color=ink)
        shown = panel.imshow(values, cmap="RdBu", vmin=-15, vmax=15, aspect="auto", origin="lower")
        panel.set_xticks(range(len(alphas)), [f"{a:g}" for a in alphas])
        panel.set_yticks(range(len(images)), [str(i) for i in images])
        panel.set(xlabel="alpha of the classes (left: most skewed)", title=f"FedTTA − {rival}", ylabel="")
    axes[0].set_ylabel("images a client")
    figure.colorbar(shown, ax=axes, label="points, new clients")
    figure.savefig(file, dpi=110)


def difference(cell: dict[str, Any], rival: str) -> dict[str, Any]:
    """FedTTA minus a rival, paired by seed, with Student's t interval at 95 %."""
    ours, theirs = (dict(enumerate(cell["accuracy"][name])) for name in ("FedTTA", rival))
    found = paired_difference(ours, theirs)
    assert found is not None
    return asdict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/digit_five"), help="folder with mnist.npz")
    parser.add_argument("--runs", type=Path, default=Path("runs/learned_adaptation"), help="where run folders are")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "learned-adaptation.png")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of FedTTA")
    parser.add_argument("--alpha", type=float, action="append", help="these alone")
    parser.add_argument("--images", type=int, action="append", help="these alone")
    given = parser.parse_args()
    if (given.alpha or given.images or given.rounds != ROUNDS) and given.out == RESULT:
        parser.error("some cells alone, or other rounds: give another --out")
    kept = json.loads(given.out.read_text())["cells"] if given.out.exists() else []
    done = {(cell["alpha"], cell["images"]): cell for cell in kept}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for images in given.images or IMAGES:
        for alpha in given.alpha or ALPHAS:
            if (alpha, images) not in done:
                done[alpha, images] = run_cell(alpha, images, given.data, given.runs, given.rounds)
                print(json.dumps(done[alpha, images]["accuracy"]), flush=True)
            cells = list(done.values())
            what = {"rounds": given.rounds, "seeds": SEEDS, "settings": SETTINGS, "overrides": OVERRIDES}
            for cell in cells:
                cell["differences"] = {name: difference(cell, name) for name in cell["accuracy"] if name != "FedTTA"}
            keep(given.out, {**what, "environment": provenance("cpu"), "cells": cells})
    if given.out == RESULT:
        picture(list(done.values()), given.picture)


if __name__ == "__main__":
    main()
