"""The two tests of FedTAB that docs/fedtab-*-test.md fix, a piece at a time.

``python benchmarks/fedtab.py --list`` names the pieces, ``fedtab.py PIECE…`` runs those, ``--all`` all that are not
done; ``--only main`` leaves ablations and equal compute for later, ``--only "untrusted plain"`` takes one ablation. Run
folders are in --runs (default runs/fedtab), and a run that was stopped is continued. What tables need is written to
results/fedtab after each run of a piece, for ``python benchmarks/tables.py``. An ablation that trusts and groups the
clients of a piece as FedTAB or another ablation does has its numbers, to the bit, and is not run. On other hardware
than that of ``main``, source models differ, so FedTAB is run again there for comparison with the ablations. ``--minutes
9`` stops after nine minutes, between two rounds, and the same command continues. What results/fedtab holds is not run
again, wherever --out is. ``--small --out FOLDER`` rehearses.

A piece of digits takes more than an hour of one core; run all of them on a machine that has no other work.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtab_pieces import BESIDE, FIRST, RUNS, SMALL, SOURCE, TRUSTED, Piece, Plan, pieces
from keep import keep
from run_pieces import check_pieces, find_results, piece_options, run_bench, run_pieces
from time_limit import StopsAfter

from fedwca.results.read_run import Run

RESULTS = Path(__file__).parent / "results" / "fedtab"


def play(piece: Piece, name: str, options: argparse.Namespace, clock: StopsAfter) -> Run:
    """Run or continue one run of a piece, and read its run folder."""
    settings = {**piece.runs()[name], **(SMALL if options.small else {})}
    if settings["dataset"] == "pacs":
        settings["model"] = f"resnet18:side=64,weights={options.weights}"
    return run_bench(options.runs / piece.name / name.replace(" ", "_"), settings, options, clock)


def read_found(piece: Piece, options: argparse.Namespace) -> dict[str, Any]:
    """The results of a piece so far; without runs and methods if there are none."""
    identity = {"kind": piece.kind, "source": piece.source, "seed": piece.seed, "lr": piece.settings["lr"]}
    result: dict[str, Any] = {**identity, "runs": [], "methods": {}}
    for file in find_results(piece.name, options, RESULTS):
        result = merge_results(result, json.loads(file.read_text()))
    return result


def merge_results(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The results of a piece from two files; what both have is the second's.

    >>> merge_results({"runs": ["a", "b"], "methods": {"A": 1}}, {"runs": ["b", "c"], "methods": {"C": 2}})
    {'runs': ['a', 'b', 'c'], 'methods': {'A': 1, 'C': 2}}
    """
    lists = {
        name: [*dict.fromkeys((*first.get(name, ()), *second.get(name, ())))]
        for name in ("runs", "diverged")
        if name in first or name in second
    }
    tables = {
        name: first.get(name, {}) | second.get(name, {})
        for name in ("methods", "beside")
        if name in first or name in second
    }
    return first | second | lists | tables


def add_results(run: Run, results: dict[str, Any]) -> None:
    """Add a run's results: by method the clients' accuracies in percent, bytes, wall seconds and the source model.

    For FedTAB also trust and clusters of round 0. A method that diverged has no accuracy and is listed in ``diverged``.
    """
    results["domains"] = list(run.domains)
    results.setdefault("environment", run.environment)
    for name, marked_label in run.labels.items():
        label = marked_label.removesuffix(" (ORACLE)")  # tables look for the names of the plan
        records = run.rounds(name)
        if run.diverged.get(name):
            results.setdefault("diverged", []).append(label)
            continue
        weights = records[0].get("source_weights")
        results["methods"][label] = {
            "accuracy": records[-1]["accuracy"],
            "bytes": sum(record.get("bytes_down", 0) + record.get("bytes_up", 0) for record in records),
            "seconds": sum(record.get("seconds", {}).get("round", 0.0) for record in records),
            "commit": run.environment.get("commit"),
            "source_weights": weights,
        }
        if name == "fedtab":
            first = next(record for record in records if record["round"] == 0)
            results |= {"trust": first["trust"], "trusted": first["trusted"], "clusters": first.get("labels")}
            results["source_weights"] = weights


def find_base(
    piece: Piece, results: dict[str, Any], options: argparse.Namespace, clock: StopsAfter
) -> tuple[str, Mapping[str, Any]]:
    """The checksum of this machine's source model, and FedTAB's results from that model.

    Two kinds of CPU round differently, and training a source model turns that into percentage points. So an ablation is
    compared with FedTAB from the same source model: that of the run ``main`` if it ran on such a CPU; otherwise FedTAB
    is run again, and its results are kept under ``beside``.
    """
    weights = play(piece, SOURCE, options, clock).records[0]["source_weights"]
    if results.get("source_weights") == weights:
        return weights, results
    bases = results.setdefault("beside", {})
    if weights not in bases:
        base: dict[str, Any] = {"methods": {}}
        add_results(play(piece, BESIDE, options, clock), base)
        bases[weights] = base
    return weights, bases[weights]


def repeats_fedtab(run: str, base: Mapping[str, Any], plan: Plan = FIRST) -> bool:
    """Whether an ablation trusts and groups the clients of this piece exactly as FedTAB does.

    Args:
        run: name of one of the plan's runs.
        base: FedTAB's results from the same source model, with trust and clusters.
        plan: the test that the piece belongs to.
    """
    if "FedTAB" not in base["methods"] or "trust" not in base:
        return False
    if run in plan.gates:
        return plan.gate.decides_as(plan.gates[run], base["trust"])
    domains = list(dict.fromkeys(base["domains"]))
    return run == "true clusters" and base.get("clusters") == [domains.index(domain) for domain in base["domains"]]


def find_repeated(
    piece: Piece,
    run: str,
    results: Mapping[str, Any],
    source: tuple[str, Mapping[str, Any]],
    options: argparse.Namespace,
    clock: StopsAfter,
) -> dict[str, Any] | None:
    """The results of FedTAB or of another ablation, if an ablation repeats it in this piece; else None.

    Whom the source model's confidence trusts is known after one short round. The gate of ``confidence`` then decides as
    another one that is known already, often as that which trusts everybody.
    """
    weights, base = source
    if repeats_fedtab(run, base, piece.plan):
        return {"same_run_as": "FedTAB"} | base["methods"]["FedTAB"]
    if run == "confidence":
        trusted = play(piece, TRUSTED, options, clock).records[-1]["trusted"]
        for label, gate in {"FedTAB": piece.plan.gate, **piece.plan.gates}.items():
            entry = (base if label == "FedTAB" else results)["methods"].get(label, {})
            if gate.levels(base["trust"]) == trusted and entry.get("source_weights") == weights:
                return {"same_run_as": label} | entry
    return None


def run_ablation(
    piece: Piece,
    run: str,
    results: dict[str, Any],
    source: tuple[str, Mapping[str, Any]],
    options: argparse.Namespace,
    clock: StopsAfter,
) -> None:
    """Run an ablation, or copy the results of what it repeats; ``source`` is the result of `find_base`."""
    if repeated := find_repeated(piece, run, results, source, options, clock):
        results["methods"][run] = repeated
        return
    ablation: dict[str, Any] = {"methods": {}}
    add_results(play(piece, run, options, clock), ablation)
    if {entry["source_weights"] for entry in ablation["methods"].values()} - {source[0]}:
        raise SystemExit(f"{piece.name}, {run}: its source model is not this machine's; remove its run folder")
    results["methods"] |= ablation["methods"]
    if "diverged" in ablation:
        results["diverged"] = [*results.get("diverged", []), *ablation["diverged"]]


def fill_in_repeats(piece: Piece, results: dict[str, Any]) -> bool:
    """Copy FedTAB's results to missing ablations that repeat it in this piece; returns whether there were any."""
    repeats = [
        run for run in piece.plan.runs if run not in results["runs"] and repeats_fedtab(run, results, piece.plan)
    ]
    for run in repeats:
        results["methods"][run] = results["methods"]["FedTAB"] | {"same_run_as": "FedTAB"}
    results["runs"] += repeats
    return bool(repeats)


def run_missing(piece: Piece, options: argparse.Namespace, clock: StopsAfter) -> None:
    """Run the missing runs of a piece, and write its results after each."""
    results, source = read_found(piece, options), None

    def write() -> None:
        # Another process may have added runs of this piece meanwhile.
        keep(options.out / f"{piece.name}.json", merge_results(read_found(piece, options), results))

    if fill_in_repeats(piece, results):
        write()
    for run in options.only or piece.plan.runs:
        if run in piece.plan.runs and run not in results["runs"]:
            if run == "main":
                add_results(play(piece, run, options, clock), results)
            else:
                source = source or find_base(piece, results, options, clock)
                run_ablation(piece, run, results, source, options, clock)
            results["runs"].append(run)
            fill_in_repeats(piece, results)
            write()


def describe_done(piece: Piece, options: argparse.Namespace) -> str:
    """Names of the runs of a piece that are done."""
    return " ".join(read_found(piece, options)["runs"])


def main() -> None:
    parser = piece_options(__doc__ or "", RESULTS)
    parser.add_argument("--all", action="store_true", help="all pieces that are not done, in order")
    parser.add_argument("--only", choices=RUNS, action="append", help="of each piece, this run alone")
    options = parser.parse_args()
    pieces_by_name = {piece.name: piece for piece in pieces()}
    check_pieces(parser, options, pieces_by_name)
    chosen = pieces_by_name if options.all or options.list else {name: pieces_by_name[name] for name in options.pieces}
    run_pieces(chosen, options, run_missing, describe_done)


if __name__ == "__main__":
    main()
