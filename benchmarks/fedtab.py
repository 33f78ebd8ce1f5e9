"""The two tests of FedTAB that docs/fedtab.md fixes, a piece at a time.

``python benchmarks/fedtab.py --list`` names the pieces, ``fedtab.py PIECE…`` runs those, ``--all`` all that are not
done; ``--only main`` leaves ablations and equal compute for later, ``--only "untrusted plain"`` takes one ablation. Run
folders are in --runs (default runs/fedtab), and a run that was stopped goes on. What tables need is written to
results/fedtab after each run of a piece, for ``python benchmarks/tables.py``. An ablation that trusts and groups the
clients of a piece as FedTAB does has FedTAB's numbers, to the bit, and is not run; on other hardware than that of
``main`` FedTAB is run again beside the ablations, since source models differ there. ``--minutes 9`` stops after so
many, between two rounds, and the same command goes on; what results/fedtab holds is not run again, wherever --out is.
``--small --out FOLDER`` rehearses.

A piece of digits is more than an hour of one core; all of them are for a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtab_pieces import BESIDE, FIRST, RUNS, SMALL, SOURCE, Piece, Plan, pieces
from keep import keep
from run_pieces import check_pieces, find_results, piece_options, run_bench, run_pieces
from time_limit import StopsAfter

from fedwca.results.read_run import Run

RESULTS = Path(__file__).parent / "results" / "fedtab"


def play(piece: Piece, name: str, given: argparse.Namespace, clock: StopsAfter) -> Run:
    """Run what is missing of one run of a piece."""
    settings = {**piece.runs()[name], **(SMALL if given.small else {})}
    if settings["dataset"] == "pacs":
        settings["model"] = f"resnet18:side=64,weights={given.weights}"
    return run_bench(given.runs / piece.name / name.replace(" ", "_"), settings, given, clock)


def read_found(piece: Piece, given: argparse.Namespace) -> dict[str, Any]:
    """What is known of a piece by now."""
    if files := find_results(piece.name, given, RESULTS):
        return dict(json.loads(files[-1].read_text()))
    begun = {"kind": piece.kind, "source": piece.source, "seed": piece.seed, "lr": piece.settings["lr"]}
    return {**begun, "runs": [], "methods": {}}


def add_results(run: Run, found: dict[str, Any]) -> None:
    """Add what a run found: by method accuracies of clients in percent, bytes, seconds of the clock, and the source
    model they start from; of FedTAB also trust and clusters of round 0.

    A method that diverged has no accuracy: it is named in ``diverged``.
    """
    found["domains"] = list(run.domains)
    found.setdefault("environment", run.environment)
    for name, label in run.labels.items():
        records = run.rounds(name)
        if run.diverged.get(name):
            found.setdefault("diverged", []).append(label)
            continue
        weights = records[0].get("source_weights")
        found["methods"][label] = {
            "accuracy": records[-1]["accuracy"],
            "bytes": sum(r.get("bytes_down", 0) + r.get("bytes_up", 0) for r in records),
            "seconds": sum(r.get("seconds", {}).get("round", 0.0) for r in records),
            "commit": run.environment.get("commit"),
            "source_weights": weights,
        }
        if name == "fedtab":
            first = next(r for r in records if r["round"] == 0)
            found |= {"trust": first["trust"], "trusted": first["trusted"], "clusters": first.get("labels")}
            found["source_weights"] = weights


def find_base(
    piece: Piece, found: dict[str, Any], given: argparse.Namespace, clock: StopsAfter
) -> tuple[str, Mapping[str, Any]]:
    """The checksum of this machine's source model, and FedTAB from it.

    The last digits of two kinds of CPU differ, and the training of a source model makes points of them. So an ablation
    is compared with FedTAB from the very source model it has: that of the run ``main`` where it was run on such a CPU,
    and where it was not, FedTAB is run again and kept under ``beside``.
    """
    weights = play(piece, SOURCE, given, clock).records[0]["source_weights"]
    if found.get("source_weights") == weights:
        return weights, found
    beside = found.setdefault("beside", {})
    if weights not in beside:
        base: dict[str, Any] = {"methods": {}}
        add_results(play(piece, BESIDE, given, clock), base)
        beside[weights] = base
    return weights, beside[weights]


def repeats_fedtab(run: str, base: Mapping[str, Any], plan: Plan = FIRST) -> bool:
    """Whether an ablation differs from FedTAB in nothing that the piece knows of: whom it trusts, how it groups.

    Args:
        run: one of the plan's.
        base: FedTAB's trust and clusters from the same source model.
        plan: the test.
    """
    if "FedTAB" not in base["methods"] or "trust" not in base:
        return False
    if run in plan.gates:
        return plan.gate.decides_as(plan.gates[run], base["trust"])
    order = list(dict.fromkeys(base["domains"]))
    return run == "true clusters" and base.get("clusters") == [order.index(domain) for domain in base["domains"]]


def run_ablation(
    piece: Piece,
    run: str,
    found: dict[str, Any],
    source: tuple[str, Mapping[str, Any]],
    given: argparse.Namespace,
    clock: StopsAfter,
) -> None:
    """Run an ablation, or let FedTAB's numbers stand for it; ``source``: of `find_base`."""
    weights, base = source
    if repeats_fedtab(run, base, piece.plan):
        found["methods"][run] = base["methods"]["FedTAB"] | {"same_run_as": "FedTAB"}
        return
    ended: dict[str, Any] = {"methods": {}}
    add_results(play(piece, run, given, clock), ended)
    if {entry["source_weights"] for entry in ended["methods"].values()} - {weights}:
        raise SystemExit(f"{piece.name}, {run}: its source model is not this machine's; remove its run folder")
    found["methods"] |= ended["methods"]
    if "diverged" in ended:
        found["diverged"] = [*found.get("diverged", []), *ended["diverged"]]


def fill_in_repeats(piece: Piece, found: dict[str, Any]) -> bool:
    """Let FedTAB's numbers stand for ablations that do in this piece what it does; whether there were any left."""
    left = [run for run in piece.plan.runs if run not in found["runs"] and repeats_fedtab(run, found, piece.plan)]
    for run in left:
        found["methods"][run] = found["methods"]["FedTAB"] | {"same_run_as": "FedTAB"}
    found["runs"] += left
    return bool(left)


def run_missing(piece: Piece, given: argparse.Namespace, clock: StopsAfter) -> None:
    """Run what is missing of a piece, and keep what each run found."""
    found, source = read_found(piece, given), None

    def write() -> None:
        keep(given.out / f"{piece.name}.json", found)

    if fill_in_repeats(piece, found):
        write()
    for run in given.only or piece.plan.runs:
        if run in piece.plan.runs and run not in found["runs"]:
            if run == "main":
                add_results(play(piece, run, given, clock), found)
            else:
                source = source or find_base(piece, found, given, clock)
                run_ablation(piece, run, found, source, given, clock)
            found["runs"].append(run)
            fill_in_repeats(piece, found)
            write()


def describe_done(piece: Piece, given: argparse.Namespace) -> str:
    """The runs of a piece that are done."""
    return " ".join(read_found(piece, given)["runs"])


def main() -> None:
    parser = piece_options(__doc__ or "", RESULTS)
    parser.add_argument("--all", action="store_true", help="all pieces that are not done, in order")
    parser.add_argument("--only", choices=RUNS, action="append", help="of each piece, this run alone")
    given = parser.parse_args()
    every = {piece.name: piece for piece in pieces()}
    check_pieces(parser, given, every)
    chosen = every if given.all or given.list else {name: every[name] for name in given.pieces}
    run_pieces(chosen, given, run_missing, describe_done)


if __name__ == "__main__":
    main()
