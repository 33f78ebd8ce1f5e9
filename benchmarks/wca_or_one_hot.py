"""Where mixing clusters (WCA) pays over keeping them apart (One-hot): FedWCA and the same with One-hot, side by side.

``python benchmarks/wca_or_one_hot.py`` runs what is missing, first every case of one seed, then the next seed;
``--list`` names the pieces, ``wca_or_one_hot.py PIECE…`` runs those. Run folders are in --runs (default
runs/wca_or_one_hot), a run that was stopped goes on, and what tables need is written to results/wca_or_one_hot after
each piece, for ``python benchmarks/tables.py``. A piece is about two minutes of one core;
``--minutes 9`` stops after so many, between two rounds.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from keep import keep
from run_pieces import check_pieces, find_results, piece_options, run_bench, run_pieces
from time_limit import StopsAfter
from torch import Tensor
from wca_or_one_hot_pieces import METHODS, UNTRAINED, Damage, Piece, damage_clusters, pieces

from fedwca.clusterers import clusterers, register
from fedwca.clusterers.true import TrueDomains
from fedwca.core.messages import Signatures
from fedwca.results.read_run import Run

RESULTS = Path(__file__).parent / "results" / "wca_or_one_hot"
SMALL: dict[str, Any] = {"samples": 40, "rounds": 2, "epochs": 1}
"""To rehearse."""


class DamagedDomains(TrueDomains):
    """True domains that are made wrong on purpose."""

    label = "Damaged"
    damage: Damage = "merged"
    """merged: the first two domains are one cluster; split: each domain is two clusters; shuffled: see ``share``."""
    share: float = 0.5
    """Clients, in parts of all, that get each other's cluster."""

    def __call__(self, signatures: Signatures) -> Tensor:
        """A cluster for each client ``[K]``, the same ones in every run."""
        true = super().__call__(signatures)
        return torch.as_tensor(damage_clusters(true.tolist(), self.damage, self.share), dtype=true.dtype)


def measure(run: Run, piece: Piece) -> dict[str, Any]:
    """What tables and the picture need of a run: by client where it says so, by round else."""
    found: dict[str, Any] = {
        "dataset": piece.dataset,
        "case": piece.case,
        "seed": piece.seed,
        "domains": list(run.domains),
    }
    found["source_accuracy"] = run.rounds("source_only")[-1]["accuracy"]
    found[UNTRAINED] = {"accuracy": run.rounds("source_ada_bn")[-1]["accuracy"]}
    for name, label in METHODS.items():
        records = run.rounds(name)
        first = next(record for record in records if record["round"] == 0)
        found[label] = {
            "accuracy": records[-1]["accuracy"],
            "right": [first["pseudo_label_accuracy"], records[-1]["pseudo_label_accuracy"]],
            "ari": first["clustering"]["ari"],
        }
        if label == "FedWCA":
            mixed = [record for record in records if record.get("alpha")]
            found["alpha_own"] = [own_share(record["alpha"], first["labels"]) for record in mixed]
            found["beta_own"] = [statistics.fmean(row[0] for row in record["beta"]) for record in mixed]
            parts = run.methods[name]["components"]
            (tb,) = (part["tb"] for part in parts if part["kind"] == "aggregator")
            found["density_lead"] = [density_lead(record["beta"], tb) for record in mixed]
    return found | {"settings": piece.settings(), "environment": run.environment}


def own_share(alpha: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """Mean weight of eq. 1 that clients give to their own cluster.

    >>> own_share([[0.75, 0.25], [0.5, 0.5]], [0, 1])
    0.625
    """
    return statistics.fmean(row[label] for row, label in zip(alpha, labels, strict=True))


def density_lead(beta: Sequence[Sequence[float]], tb: float) -> float:
    """Density of the own model minus that of the mixed one in nats, mean over clients: what beta of eq. 3 was made of.

    >>> round(density_lead([[0.5, 0.5], [0.7310586, 0.2689414]], 0.05), 6)
    0.025
    """
    return statistics.fmean(tb * math.log(own / mixed) for own, mixed in beta)


def play(piece: Piece, given: argparse.Namespace, clock: StopsAfter) -> Run:
    """Run a piece, or what it lacks."""
    if "damaged_domains" not in clusterers.names():
        register("damaged_domains")(DamagedDomains)  # for this process alone, which may be one of several
    settings = {**piece.settings(), **(SMALL if given.small else {})}
    return run_bench(given.runs / piece.name, settings, given, clock)


def run_missing(piece: Piece, given: argparse.Namespace, clock: StopsAfter) -> None:
    """Run a piece of which no result is kept, and keep it."""
    if not find_results(piece.name, given, RESULTS):
        found = measure(play(piece, given, clock), piece)
        keep(given.out / f"{piece.name}.json", found)


def describe_done(piece: Piece, given: argparse.Namespace) -> str:
    """Whether the result of a piece is kept."""
    return "done" if find_results(piece.name, given, RESULTS) else ""


def main() -> None:
    parser = piece_options(__doc__ or "", RESULTS)
    given = parser.parse_args()
    every = {piece.name: piece for piece in pieces()}
    check_pieces(parser, given, every)
    run_pieces({name: every[name] for name in given.pieces or every}, given, run_missing, describe_done)


if __name__ == "__main__":
    main()
