"""Tables of a size that counts: all images, and the paper's own size, a piece at a time.

A piece is a source domain and a source model, with all methods, each in a run folder of its own under --runs.
``python benchmarks/paper_size.py --all --minutes 60`` continues with all pieces; ``--device cuda`` with those for a
GPU: PACS, and the paper's own size (100 rounds, five source models, three trials); names of pieces select these. A run
stops after --minutes, between two rounds, and the same command continues it, as `fedwca resume` of its folder does.

What tables need of a finished method is written to results/paper_size, with its configuration and hardware; then
``python benchmarks/tables.py`` writes the tables. A method kept there is not run again, whatever --out is and even if
its run folder is gone. Methods that differ only in their clusterer have equal numbers in a piece where their clusters
are equal, so one run stands for all of them. ``--methods fedscal "fedwca by update"`` runs only these, so that several
processes can share a piece.

Another kind of processor trains a different source model. While a piece lacks methods, results/paper_size/sources may
hold its source model, under its name in the cache, so that any machine can continue the piece; remove the file once the
piece is complete. ``--list`` says what is done; ``--small --out FOLDER`` rehearses the first piece of each kind.
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

from fedwca.config.config_layers import merge
from fedwca.config.method_spec import parse_method
from fedwca.core.files import write_atomically
from fedwca.core.tensor_files import checksum, open_tensors
from fedwca.data.cache import cache_dir
from fedwca.results.read_run import Run, read_run

RESULTS = Path(__file__).parent / "results" / "paper_size"
PLACES = ("data", "device", "engine", "kernels", "workers", "trials_at_once")
"""Configuration keys about the machine, which do not change results and are not kept."""


class SameClusters(KeyboardInterrupt):
    """Stops a run like Ctrl-C, because a kept method with the same clusters has the results that would follow."""


class StopsEarly(StopsAfter):
    """Ends a run after round 0 if its results are already known, or if its source model is not that of its piece.

    Args:
        clock: time limit of all runs.
        folder: run folder.
        result: what is kept of the piece.
        labels_by_method: clusters of kept methods that differ from this one only in their clusterer.
    """

    def __init__(
        self,
        clock: StopsAfter,
        folder: Path,
        result: Mapping[str, Any],
        labels_by_method: Mapping[str, list[int]],
    ) -> None:
        self.end, self.folder, self.known = clock.end, folder, labels_by_method
        self.sources = {entry.get("source_weights") for entry in result["methods"].values()} - {None}
        self.same: str | None = None

    def check(self, *done: Any) -> None:
        """See the base class; ``done`` holds the number of rounds done and an accuracy.

        Raises:
            SameClusters: a kept method has the clusters of this one.
            SystemExit: the methods that are kept were run from another source model.
        """
        if done and done[0] == 1:
            run = read_run(self.folder)
            self.check_source(run)
            labels_of_run = first_labels(run, *run.methods)
            self.same = next((name for name, labels in self.known.items() if labels == labels_of_run), None)
            if self.same is not None:
                raise SameClusters
        super().check()

    def check_source(self, run: Run) -> None:
        """Check that a method's run began from the source model of the methods that are kept.

        Raises:
            SystemExit: it began from another one.
        """
        if self.sources and source_weights(run) not in self.sources:
            raise SystemExit(
                f"{self.folder.parent.name} was begun with another source model, as another kind of processor "
                "trains it: go on there, put that model into results/paper_size/sources, or remove the file of "
                "results to begin anew"
            )


def source_weights(run: Run) -> str | None:
    """Checksum of the first source model of a run; None if no record has one."""
    return next((record["source_weights"] for record in run.records if "source_weights" in record), None)


def first_labels(run: Run, name: str) -> list[int] | None:
    """Cluster of each of a method's clients in round 0; None if it has no clusters or the run several trials."""
    first = [record.get("labels") for key in run.runs for record in run.rounds(name, key) if record["round"] == 0]
    return first[0] if len(first) == 1 else None


def known_clusters(method: str, result: Mapping[str, Any]) -> dict[str, list[int]]:
    """Clusters by name of the kept methods of a piece that differ from this one only in their clusterer."""
    method_name = parse_method(method).name
    names = [name for name in BY_CLUSTERER if name in result["methods"]] if method_name in BY_CLUSTERER else []
    return {name: labels for name in names if (labels := result["methods"][name].get("labels"))}


def play(piece: Piece, method: str, options: argparse.Namespace, clock: StopsAfter) -> Run:
    """Run what is missing of one method of a piece, and read the run."""
    settings = {**piece.settings(options.weights, options.small), "baselines": [method]}
    folder = run_folder(piece, method, options.runs)
    with suppress(SameClusters):
        return run_bench(folder, settings, options, clock)
    return read_run(folder)


def run_folder(piece: Piece, method: str, runs: Path) -> Path:
    """The run folder of a method of a piece."""
    return runs / piece.name / parse_method(method).name.replace(" ", "_")


def read_found(piece: Piece, options: argparse.Namespace) -> dict[str, Any]:
    """What is kept of a piece in results/paper_size and in --out; methods in --out take precedence."""
    result = {"kind": piece.kind.name, "source": piece.source, "seed": piece.seed, "complete": False, "methods": {}}
    for file in find_results(piece.name, options, RESULTS):
        saved = json.loads(file.read_text())
        result |= saved | {"methods": result["methods"] | saved["methods"]}
    return result


def missing_methods(piece: Piece, result: Mapping[str, Any], only: Sequence[str] = ()) -> list[str]:
    """Methods of which no result is kept, in the order in which they are run.

    Args:
        piece: whose methods.
        result: what is kept of it.
        only: names of the methods to run; empty: all.
    """
    names = {parse_method(method).name: method for method in piece.kind.methods}
    return [method for name, method in names.items() if name not in result["methods"] and (not only or name in only)]


def run_missing(piece: Piece, options: argparse.Namespace, clock: StopsAfter) -> None:
    """Run the missing methods of a piece, and keep the results of each.

    Raises:
        SystemExit: a method was run with settings that contradict those of methods that are kept.
    """
    saved = read_found(piece, argparse.Namespace(**{**vars(options), "again": False}))  # also with --again
    restore_source(saved, RESULTS / "sources")
    for method in missing_methods(piece, read_found(piece, options), options.methods):
        result = read_found(piece, options)
        reporter = StopsEarly(clock, run_folder(piece, method, options.runs), result, known_clusters(method, result))
        run = play(piece, method, options, reporter)
        reporter.check_source(run)  # of a method without rounds, too
        result = read_found(piece, options)  # other processes may have added methods meanwhile
        config = kept_settings(run.config) | {"baselines": list(piece.kind.methods)}
        if (joined := join_settings(result.get("config", config), config)) is None:
            sys.exit(f"{piece.name}: {method} was run with other settings than methods that are kept; remove those")
        result["config"] = joined
        add_results(run, result, reporter.same)
        result["complete"] = not missing_methods(piece, result)
        keep(options.out / f"{piece.name}.json", result)


def add_results(run: Run, result: dict[str, Any], same_as: str | None = None) -> None:
    """Add the results of a method: accuracies in percent by trial, learning curves, clusters and costs.

    Args:
        run: of the method.
        result: what is kept of the piece.
        same_as: kept method with the same clusters, because of which the run was stopped; None: the run is complete.
    """
    result["domains"] = run.domains
    for name in run.methods:
        result["methods"][name] = (
            describe_method(run, name) if same_as is None else repeat_method(run, name, result, same_as)
        )
    result.setdefault("environment", run.environment)


def describe_method(run: Run, name: str) -> dict[str, Any]:
    """Results of a method, over the trials that did not diverge."""
    trials = [run.rounds(name, key) for key in run.runs if key not in run.diverged.get(name, {})]
    first_rounds = [next((r for r in records if r["round"] == 0), {}) for records in trials]
    return {
        "label": run.methods[name]["label"],
        "accuracy": [records[-1]["accuracy"] for records in trials],
        "curve": [[round(mean_of_known(r["accuracy"]), 2) for r in records] for records in trials],
        "clusters": [
            {key: r["clustering"][key] for key in ("ari", "sizes")} for r in first_rounds if "clustering" in r
        ],
        "labels": first_labels(run, name),
        "source_weights": source_weights(run),
        "seconds": round(sum(r.get("seconds", {}).get("round", 0.0) for records in trials for r in records), 1),
        "bytes": sum(r.get("bytes_down", 0) + r.get("bytes_up", 0) for records in trials for r in records),
        **({"diverged": len(run.diverged[name])} if run.diverged.get(name) else {}),
        **{key: run.environment.get(key) for key in ("commit", "device", "cores", "cpu")},
    }


def repeat_method(run: Run, name: str, result: Mapping[str, Any], same_as: str) -> dict[str, Any]:
    """The results of a kept method under the label of another one, without its seconds and bytes."""
    entry = {key: value for key, value in result["methods"][same_as].items() if key not in ("seconds", "bytes")}
    return entry | {"label": run.methods[name]["label"], "same_run_as": same_as}


def kept_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without `PLACES`, at any depth; of the path of a weights file only the name stays."""
    settings = {key: value for key, value in config.items() if key not in PLACES}
    if settings.get("weights"):
        settings["weights"] = Path(settings["weights"]).name
    return {key: kept_settings(value) if isinstance(value, Mapping) else value for key, value in settings.items()}


def join_settings(settings: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any] | None:
    """Settings of the kept methods merged with those of an added one; None where they contradict each other.

    A preset sets values only for components of a run's methods, so each method adds the settings of its own components.
    """
    joined = merge(settings, added)
    return joined if settings.keys() == added.keys() and joined == merge(added, settings) else None


def restore_source(result: Mapping[str, Any], folder: Path) -> None:
    """Copy the source model that a piece was begun with from a folder into the cache, if the folder has it."""
    checksums = {entry.get("source_weights") for entry in result["methods"].values()}
    for file in sorted(folder.glob("*.safetensors")):
        tensors = open_tensors(file).tensors()
        tensors.pop("accuracy")
        if f"{checksum(tensors):08x}" in checksums:
            cached = cache_dir() / "sources" / file.name
            write_atomically(cached, lambda target, file=file: shutil.copyfile(file, target) and None)


def say_state(piece: Piece, options: argparse.Namespace) -> str:
    """What is done of a piece: "done", "nothing", or the number of finished methods and the rounds of begun ones."""
    missing = missing_methods(piece, read_found(piece, options))
    finished = len(piece.kind.methods) - len(missing)
    if not missing:
        return "done"
    begun = [method for method in missing if (run_folder(piece, method, options.runs) / "config.json").is_file()]
    parts = [f"{finished} of {len(piece.kind.methods)} methods"] if finished or begun else ["nothing"]
    for method in begun:
        run = read_run(run_folder(piece, method, options.runs))
        parts += [
            f"{name} {sum(run.rounds_done(name))}/{entry['rounds'] * run.count}" for name, entry in run.methods.items()
        ]
    return ", ".join(parts)


def main() -> int:
    parser = piece_options(__doc__ or "", RESULTS)
    parser.add_argument("--all", action="store_true", help="all pieces, those for another device too")
    parser.add_argument("--methods", nargs="+", default=(), help="those of each piece alone, by their names in results")
    options = parser.parse_args()
    all_methods = {parse_method(method).name for kind in KINDS for method in kind.methods}
    if unknown := sorted(set(options.methods) - all_methods):
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(sorted(all_methods))}")
    all_pieces = {piece.name: piece for piece in pieces(options.data, options.small)}
    check_pieces(parser, options, all_pieces)
    if options.device.startswith("cuda") and not torch.cuda.is_available() and not options.list:
        print("there is no CUDA device here; --device cpu --small --out FOLDER rehearses", file=sys.stderr)
        return 1
    if options.small:
        options.runs = options.out / "runs"
    any_device, device_type = options.all or options.list or options.small, options.device.partition(":")[0]
    default_pieces = [name for name, piece in all_pieces.items() if any_device or piece.kind.device == device_type]
    if not options.pieces and not default_pieces:
        datasets = ", ".join(sorted({kind.dataset for kind in KINDS if any_device or kind.device == device_type}))
        parser.error(f"{options.data} has no folder for any piece ({datasets}); name another with --data")
    run_pieces({name: all_pieces[name] for name in options.pieces or default_pieces}, options, run_missing, say_state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
