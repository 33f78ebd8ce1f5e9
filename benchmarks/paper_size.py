"""Tables of a size that counts: all images on a CPU, and the paper's own size on a GPU, a piece at a time.

``python benchmarks/paper_size.py --all --minutes 60`` goes on with all pieces, ``--device cuda`` with those of the
paper's own size (100 rounds, five source models, three trials); names of pieces take those. A piece is a source and a
source model, with all methods, in one run folder of --runs. It stops after --minutes, between two rounds, and the same
command goes on there, as `fedwca resume` of the run folder does. When a piece ends or stops, what tables need of the
methods that ended is written to results/paper_size, with configuration and hardware; then ``python
benchmarks/tables.py``. ``--list`` says what is done; ``--small --out FOLDER`` rehearses the first piece of each kind.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from keep import keep
from paper_size_pieces import Piece, pieces
from time_limit import StopsAfter, TimeIsUp

from fedwca import bench
from fedwca.results.read_run import Run, read_run

RESULTS = Path(__file__).parent / "results" / "paper_size"
PLACES = ("data", "device", "engine", "kernels", "workers", "trials_at_once")
"""What a configuration says of a machine and not of numbers; the rest is kept."""


def play(piece: Piece, given: argparse.Namespace, clock: StopsAfter) -> None:
    """Run what is missing of a piece."""
    clock.check()
    settings = piece.settings(given.data, given.weights, given.device, given.small)
    quick = {"source_training.epochs": 1} if given.small else {}
    bench(out=given.runs / piece.name, resume=True, keep="none", overrides=quick, reporter=clock, **settings)


def describe(piece: Piece, run: Run) -> dict[str, Any]:
    """What a piece came to by now: of the methods that ended, accuracies in percent by trial, and how they came."""
    ended = [name for name, about in run.methods.items() if run.done(name) == [about["rounds"]] * run.count]
    return {
        **{"kind": piece.kind.name, "source": piece.source, "seed": piece.seed, "complete": run.complete},
        "domains": run.domains,
        "methods": {name: describe_method(run, name) for name in ended},
        "config": kept_settings(run.config),
        "environment": run.environment,
    }


def describe_method(run: Run, name: str) -> dict[str, Any]:
    """Of the trials that did not diverge."""
    trials = [run.rounds(name, key) for key in run.runs if key not in run.diverged.get(name, {})]
    first = [next((r for r in records if r["round"] == 0), {}) for records in trials]
    return {
        "label": run.methods[name]["label"],
        "accuracy": [records[-1]["accuracy"] for records in trials],
        "curve": [[round(average(r["accuracy"]), 2) for r in records] for records in trials],
        "clusters": [{key: r["clustering"][key] for key in ("ari", "sizes")} for r in first if "clustering" in r],
        "seconds": round(sum(r.get("seconds", {}).get("round", 0.0) for own in trials for r in own), 1),
        "bytes": sum(r.get("bytes_down", 0) + r.get("bytes_up", 0) for own in trials for r in own),
    }


def average(values: list[float | None]) -> float:
    """Over clients with test images."""
    known = [value for value in values if value is not None and value == value]
    return sum(known) / len(known)


def kept_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what it says of a machine; of a file of weights stays the name."""
    kept = {key: value for key, value in config.items() if key not in PLACES}
    if kept.get("weights"):
        kept["weights"] = Path(kept["weights"]).name
    return {key: kept_settings(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def is_done(piece: Piece, out: Path) -> bool:
    """Whether all of it is kept."""
    file = out / f"{piece.name}.json"
    return file.exists() and bool(json.loads(file.read_text())["complete"])


def say_state(piece: Piece, out: Path, runs: Path) -> str:
    """What is done of a piece: all, nothing, or rounds by method."""
    if is_done(piece, out):
        return "done"
    if not (runs / piece.name / "config.json").is_file():
        return "nothing"
    run = read_run(runs / piece.name)
    counts = {name: (sum(run.done(name)), about["rounds"] * run.count) for name, about in run.methods.items()}
    return ", ".join(f"{name} {done}/{every}" for name, (done, every) in counts.items())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("pieces", nargs="*", help="names of pieces; default: those for --device")
    parser.add_argument("--list", action="store_true", help="name all pieces, with what is done of each")
    parser.add_argument("--all", action="store_true", help="all pieces, those for another device too")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many, between two rounds")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of data sets")
    parser.add_argument("--weights", type=Path, default=Path("../shared/data/weights/resnet18_imagenet_fp16.pth"))
    parser.add_argument("--runs", type=Path, default=Path("runs/paper_size"), help="where run folders are")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results are written")
    parser.add_argument("--small", action="store_true", help="tiny runs, to rehearse; needs another --out")
    given = parser.parse_args()
    if given.small and given.out == RESULTS:
        parser.error("--small is a rehearsal, whose results are not kept: give another --out")
    if given.small:
        given.runs = given.out / "runs"
    known = {piece.name: piece for piece in pieces(given.data, given.small)}
    if unknown := sorted(set(given.pieces) - set(known)):
        parser.error(f"no piece {unknown[0]!r} of the data in {given.data}; --list names them")
    every = given.all or given.list or given.small
    given.chosen = [
        own
        for name, own in known.items()
        if (name in given.pieces if given.pieces else every or own.kind.device == given.device.partition(":")[0])
    ]
    return given


def main() -> int:
    given = parse()
    if given.device.startswith("cuda") and not torch.cuda.is_available() and not given.list:
        print("there is no CUDA device here; --device cpu --small --out FOLDER rehearses", file=sys.stderr)
        return 1
    clock = StopsAfter(given.minutes)
    for piece in given.chosen:
        if given.list:
            print(f"{piece.name}: {say_state(piece, given.out, given.runs)}")
        elif not is_done(piece, given.out):
            try:
                play(piece, given, clock)
            except TimeIsUp:
                print(f"stopped after {given.minutes:g} minutes; the same command goes on")
            if (given.runs / piece.name / "config.json").is_file():
                given.out.mkdir(parents=True, exist_ok=True)
                keep(given.out / f"{piece.name}.json", describe(piece, read_run(given.runs / piece.name)))
            if clock.is_over():
                break
            print(piece.name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
