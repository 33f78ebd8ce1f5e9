"""Tables of a size that counts: all images, and the paper's own size, a piece at a time.

``python benchmarks/paper_size.py --all --minutes 60`` goes on with all pieces, ``--device cuda`` with those for a
GPU: PACS, and the paper's own size (100 rounds, five source models, three trials); names of pieces take those. A
piece is a source and a source model, with all methods, each in a run folder of its own under --runs. It stops after
--minutes, between two rounds, and the same command goes on there, as `fedwca resume` of that folder does. What tables
need of a method that ended is written to results/paper_size, with configuration and hardware, and is not run again,
wherever --out is and even where its run folder is gone; then ``python benchmarks/tables.py``. Where methods that
differ in their clusterer alone come to the same clusters in a piece, all their numbers are the same, and one run
stands for them. ``--methods fedscal "fedwca by update"`` runs those alone, so that processes on several cores share a
piece. Another kind of CPU trains another source model; while a piece lacks methods, results/paper_size/sources may
hold its own, under the name it has in the cache, to go on from anywhere; once the piece is whole, that file goes.
``--list`` says what is done; ``--small --out FOLDER`` rehearses the first piece of each kind.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from domain_means import mean_of_known
from keep import keep
from paper_size_pieces import BY_CLUSTERER, KINDS, Piece, pieces
from run_pieces import check_pieces, find_results, piece_options, run_bench, run_pieces
from time_limit import StopsAfter

from fedwca.config.method_spec import parse_method
from fedwca.config.run_config import merge
from fedwca.core.files import write_atomically
from fedwca.core.tensor_files import checksum, open_tensors
from fedwca.data.cache import cache_dir
from fedwca.results.read_run import Run, read_run

RESULTS = Path(__file__).parent / "results" / "paper_size"
PLACES = ("data", "device", "engine", "kernels", "workers", "trials_at_once")
"""What a configuration says of a machine and not of numbers; the rest is kept."""


class SameClusters(KeyboardInterrupt):
    """A run stops, as by Ctrl-C, since all that follows is known of a method with the same clusters."""


class StopsEarly(StopsAfter):
    """Ends a run after round 0 where what follows is known, or cannot be compared with what is kept of its piece.

    Args:
        clock: that of all runs.
        folder: where the run is.
        found: what is known of its piece.
        known: clusters, by name of methods that differ from this one in their clusterer alone.
    """

    def __init__(
        self, clock: StopsAfter, folder: Path, found: Mapping[str, Any], known: Mapping[str, list[int]]
    ) -> None:
        self.end, self.folder, self.known = clock.end, folder, known
        self.sources = {entry.get("source_weights") for entry in found["methods"].values()} - {None}
        self.same: str | None = None

    def check(self, *done: Any) -> None:
        """See the base class; ``done``: rounds, and an accuracy."""
        if done and done[0] == 1:
            run = read_run(self.folder)
            if self.sources and source_weights(run) not in self.sources:
                raise SystemExit(
                    f"{self.folder.parent.name} was begun with another source model, as another kind of CPU trains it: "
                    "go on there, or remove its file of results to run it anew here"
                )
            own = first_labels(run, *run.methods)
            self.same = next((name for name, labels in self.known.items() if labels == own), None)
            if self.same is not None:
                raise SameClusters
        super().check()


def source_weights(run: Run) -> str | None:
    """Checksum of the first source model that a run starts from."""
    return next((record["source_weights"] for record in run.records if "source_weights" in record), None)


def first_labels(run: Run, name: str) -> list[int] | None:
    """Clusters of a method's clients in round 0, of a run with one trial."""
    first = [record.get("labels") for key in run.runs for record in run.rounds(name, key) if record["round"] == 0]
    return first[0] if len(first) == 1 else None


def known_clusters(method: str, found: Mapping[str, Any]) -> dict[str, list[int]]:
    """By name, clusters of methods of a piece that are kept and differ from this one in their clusterer alone."""
    own = parse_method(method).name
    names = [name for name in BY_CLUSTERER if name in found["methods"]] if own in BY_CLUSTERER else []
    return {name: labels for name in names if (labels := found["methods"][name].get("labels"))}


def play(piece: Piece, method: str, given: argparse.Namespace, clock: StopsAfter) -> Run:
    """Run what is missing of one method of a piece."""
    settings = {**piece.settings(given.weights, given.small), "baselines": [method]}
    folder = run_folder(piece, method, given.runs)
    with suppress(SameClusters):
        return run_bench(folder, settings, given, clock)
    return read_run(folder)


def run_folder(piece: Piece, method: str, runs: Path) -> Path:
    """Where a method of a piece is run."""
    return runs / piece.name / parse_method(method).name.replace(" ", "_")


def read_found(piece: Piece, given: argparse.Namespace) -> dict[str, Any]:
    """What is known of a piece by now, in results/paper_size and over that in --out."""
    found = {"kind": piece.kind.name, "source": piece.source, "seed": piece.seed, "complete": False, "methods": {}}
    for file in find_results(piece.name, given, RESULTS):
        kept = json.loads(file.read_text())
        found |= kept | {"methods": found["methods"] | kept["methods"]}
    return found


def missing_methods(piece: Piece, found: Mapping[str, Any], asked: Sequence[str] = ()) -> list[str]:
    """Methods of which no result is kept, in the order in which they are run.

    Args:
        piece: which has them.
        found: what is known of it.
        asked: names of those that are to be run; none: all.
    """
    names = {parse_method(method).name: method for method in piece.kind.methods}
    return [method for name, method in names.items() if name not in found["methods"] and (not asked or name in asked)]


def run_missing(piece: Piece, given: argparse.Namespace, clock: StopsAfter) -> None:
    """Run what is missing of a piece, and keep what each method came to."""
    kept = read_found(piece, argparse.Namespace(**{**vars(given), "again": False}))  # also where it is run anew
    restore_source(kept, RESULTS / "sources")
    for method in missing_methods(piece, read_found(piece, given), given.methods):
        found = read_found(piece, given)
        stops = StopsEarly(clock, run_folder(piece, method, given.runs), found, known_clusters(method, found))
        run = play(piece, method, given, stops)
        found = read_found(piece, given)  # with what other processes have added meanwhile
        config = kept_settings(run.config) | {"baselines": list(piece.kind.methods)}
        if (joined := join_settings(found.get("config", config), config)) is None:
            sys.exit(f"{piece.name}: {method} was run with other settings than methods that are kept; remove those")
        found["config"] = joined
        add_results(run, found, stops.same)
        found["complete"] = not missing_methods(piece, found)
        keep(given.out / f"{piece.name}.json", found)


def add_results(run: Run, found: dict[str, Any], same: str | None = None) -> None:
    """Add what a method came to: accuracies in percent by trial, and how they came.

    Args:
        run: of the method.
        found: what is known of the piece.
        same: a method that is kept, whose clusters the run has, so that it was stopped.
    """
    found["domains"] = run.domains
    for name in run.methods:
        found["methods"][name] = describe_method(run, name) if same is None else repeat_method(run, name, found, same)
    found.setdefault("environment", run.environment)


def describe_method(run: Run, name: str) -> dict[str, Any]:
    """Of the trials that did not diverge."""
    trials = [run.rounds(name, key) for key in run.runs if key not in run.diverged.get(name, {})]
    first = [next((r for r in records if r["round"] == 0), {}) for records in trials]
    return {
        "label": run.methods[name]["label"],
        "accuracy": [records[-1]["accuracy"] for records in trials],
        "curve": [[round(mean_of_known(r["accuracy"]), 2) for r in records] for records in trials],
        "clusters": [{key: r["clustering"][key] for key in ("ari", "sizes")} for r in first if "clustering" in r],
        "labels": first_labels(run, name),
        "source_weights": source_weights(run),
        "seconds": round(sum(r.get("seconds", {}).get("round", 0.0) for own in trials for r in own), 1),
        "bytes": sum(r.get("bytes_down", 0) + r.get("bytes_up", 0) for own in trials for r in own),
        **{key: run.environment.get(key) for key in ("commit", "device", "cores", "cpu")},
    }


def repeat_method(run: Run, name: str, found: Mapping[str, Any], same: str) -> dict[str, Any]:
    """What is kept of a method stands for another one; what the run took and sent it does not."""
    kept = {key: value for key, value in found["methods"][same].items() if key not in ("seconds", "bytes")}
    return kept | {"label": run.methods[name]["label"], "same_run_as": same}


def kept_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what it says of a machine; of a file of weights stays the name."""
    kept = {key: value for key, value in config.items() if key not in PLACES}
    if kept.get("weights"):
        kept["weights"] = Path(kept["weights"]).name
    return {key: kept_settings(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def join_settings(kept: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any] | None:
    """Settings of methods that are kept with those of one more, None where they contradict each other.

    A preset gives values to the components of a run's methods alone, so that each method adds those of its own.
    """
    joined = merge(kept, own)
    return joined if kept.keys() == own.keys() and joined == merge(own, kept) else None


def restore_source(found: Mapping[str, Any], folder: Path) -> None:
    """Put the source model that a piece was begun with into the cache, where runs look for it, if it is kept."""
    begun = {entry.get("source_weights") for entry in found["methods"].values()}
    for file in sorted(folder.glob("*.safetensors")):
        tensors = open_tensors(file).tensors()
        tensors.pop("accuracy")
        if f"{checksum(tensors):08x}" in begun:
            cached = cache_dir() / "sources" / file.name
            write_atomically(cached, lambda target, file=file: shutil.copyfile(file, target) and None)


def say_state(piece: Piece, given: argparse.Namespace) -> str:
    """What is done of a piece: all, nothing, or how many methods and of which one some rounds."""
    missing = missing_methods(piece, read_found(piece, given))
    ended = len(piece.kind.methods) - len(missing)
    if not missing:
        return "done"
    begun = [method for method in missing if (run_folder(piece, method, given.runs) / "config.json").is_file()]
    parts = [f"{ended} of {len(piece.kind.methods)} methods"] if ended or begun else ["nothing"]
    for method in begun:
        run = read_run(run_folder(piece, method, given.runs))
        parts += [f"{name} {sum(run.done(name))}/{about['rounds'] * run.count}" for name, about in run.methods.items()]
    return ", ".join(parts)


def main() -> int:
    parser = piece_options(__doc__ or "", RESULTS)
    parser.add_argument("--all", action="store_true", help="all pieces, those for another device too")
    parser.add_argument("--methods", nargs="+", default=(), help="those of each piece alone, by their names in results")
    given = parser.parse_args()
    every_method = {parse_method(method).name for kind in KINDS for method in kind.methods}
    if unknown := sorted(set(given.methods) - every_method):
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(sorted(every_method))}")
    known = {piece.name: piece for piece in pieces(given.data, given.small)}
    check_pieces(parser, given, known)
    if given.device.startswith("cuda") and not torch.cuda.is_available() and not given.list:
        print("there is no CUDA device here; --device cpu --small --out FOLDER rehearses", file=sys.stderr)
        return 1
    if given.small:
        given.runs = given.out / "runs"
    every, kind = given.all or given.list or given.small, given.device.partition(":")[0]
    usual = [name for name, piece in known.items() if every or piece.kind.device == kind]
    if not given.pieces and not usual:
        wanted = ", ".join(sorted({own.dataset for own in KINDS if every or own.device == kind}))
        parser.error(f"{given.data} has no folder for any piece ({wanted}); name another with --data")
    run_pieces({name: known[name] for name in given.pieces or usual}, given, run_missing, say_state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
