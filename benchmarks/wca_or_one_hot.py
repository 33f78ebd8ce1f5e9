"""Where mixing clusters (WCA) pays over keeping them apart (One-hot): FedWCA and the same with One-hot, side by side.

``python benchmarks/wca_or_one_hot.py`` runs the missing pieces, first all cases of one seed, then those of the next;
``--list`` names the pieces, ``wca_or_one_hot.py PIECE…`` runs these. Run folders are in --runs (default
runs/wca_or_one_hot), and a run that was stopped is continued. What tables need is written to results/wca_or_one_hot
after each piece, for ``python benchmarks/tables.py``. A piece takes about two minutes on one core; ``--minutes 9``
stops after nine minutes, between two rounds.
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
"""Settings of a rehearsal."""


class DamagedDomains(TrueDomains):
    """Clusters by true domains, made wrong on purpose."""

    label = "Damaged"
    damage: Damage = "merged"
    """merged: the first two domains are one cluster; split: each domain is two clusters; shuffled: see ``share``."""
    share: float = 0.5
    """Share of the clients whose clusters are permuted among them."""

    def __call__(self, signatures: Signatures) -> Tensor:
        """Cluster of each client ``[K]``, the same in every run."""
        domains = super().__call__(signatures)
        return torch.as_tensor(damage_clusters(domains.tolist(), self.damage, self.share), dtype=domains.dtype)


def measure(run: Run, piece: Piece) -> dict[str, Any]:
    """What tables and the picture need of a run.

    Accuracies and shares of right labels are per client in percent; ``alpha_own``, ``beta_own`` and ``density_lead``
    are one mean over clients per round that mixes models.

    Raises:
        SystemExit: a method diverged.
    """
    if run.diverged:
        raise SystemExit(f"{piece.name}: {', '.join(run.diverged)} diverged, and an earlier round is no result")
    result: dict[str, Any] = {
        "dataset": piece.dataset,
        "case": piece.case,
        "seed": piece.seed,
        "domains": list(run.domains),
    }
    result["source_accuracy"] = run.rounds("source_only")[-1]["accuracy"]
    result[UNTRAINED] = {"accuracy": run.rounds("source_ada_bn")[-1]["accuracy"]}
    for name, label in METHODS.items():
        records = run.rounds(name)
        first = next(record for record in records if record["round"] == 0)
        result[label] = {
            "accuracy": records[-1]["accuracy"],
            "right": [first["pseudo_label_accuracy"], records[-1]["pseudo_label_accuracy"]],
            "ari": first["clustering"]["ari"],
        }
        if label == "FedWCA":
            mixing_records = [record for record in records if record.get("alpha")]
            result["alpha_own"] = [own_share(record["alpha"], first["labels"]) for record in mixing_records]
            result["beta_own"] = [statistics.fmean(row[0] for row in record["beta"]) for record in mixing_records]
            components = run.methods[name]["components"]
            (tb,) = (component["tb"] for component in components if component["kind"] == "aggregator")
            result["density_lead"] = [density_lead(record["beta"], tb) for record in mixing_records]
    return result | {"settings": piece.settings(), "environment": run.environment}


def own_share(alpha: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """Mean weight (eq. 1) that clients give to their own cluster.

    >>> own_share([[0.75, 0.25], [0.5, 0.5]], [0, 1])
    0.625
    """
    return statistics.fmean(row[label] for row, label in zip(alpha, labels, strict=True))


def density_lead(beta: Sequence[Sequence[float]], tb: float) -> float:
    """Density of the own model minus that of the mixed one in nats, mean over clients, recovered from beta (eq. 3).

    >>> round(density_lead([[0.5, 0.5], [0.7310586, 0.2689414]], 0.05), 6)
    0.025
    """
    return statistics.fmean(tb * math.log(own / mixed) for own, mixed in beta)


def play(piece: Piece, options: argparse.Namespace, clock: StopsAfter) -> Run:
    """Run what is missing of a piece, and read the run."""
    if "damaged_domains" not in clusterers.names():
        register("damaged_domains")(DamagedDomains)  # in this process, which may be one of several
    settings = {**piece.settings(), **(SMALL if options.small else {})}
    return run_bench(options.runs / piece.name, settings, options, clock)


def run_missing(piece: Piece, options: argparse.Namespace, clock: StopsAfter) -> None:
    """Run a piece unless its result is kept, and keep the result."""
    if not find_results(piece.name, options, RESULTS):
        result = measure(play(piece, options, clock), piece)
        keep(options.out / f"{piece.name}.json", result)


def describe_done(piece: Piece, options: argparse.Namespace) -> str:
    """What --list says of a piece: "done" if its result is kept, otherwise nothing."""
    return "done" if find_results(piece.name, options, RESULTS) else ""


def main() -> None:
    parser = piece_options(__doc__ or "", RESULTS)
    options = parser.parse_args()
    all_pieces = {piece.name: piece for piece in pieces()}
    check_pieces(parser, options, all_pieces)
    run_pieces({name: all_pieces[name] for name in options.pieces or all_pieces}, options, run_missing, describe_done)


if __name__ == "__main__":
    main()
