"""The records of `paper_size.py`, and the numbers that its tables and pictures compare; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain, mean_of_known
from paper_size_pieces import BY_MOMENTS, KINDS, TABLE2, Kind

from fedwca.config.method_spec import parse_method

RESULTS = Path(__file__).resolve().parent / "results" / "paper_size"
DIGITS, MOMENTS_SOURCE, PACS, MOMENTS_PACS, PAPER_DIGITS = (
    next(kind for kind in KINDS if kind.name == name)
    for name in ("digits", "moments_source", "pacs", "moments_pacs", "paper_digits")
)
OWN = "fedwca"
SOURCE_ADA_BN = "source_ada_bn"
MOMENTS, ONE_HOT_BY_MOMENTS = (parse_method(method).name for method in BY_MOMENTS)
RIVALS = (SOURCE_ADA_BN, "local", "fedavg", "one_hot")
"""What FedWCA is compared with by target domain."""
Run = tuple[str, int]
"""A source domain, and the seed of a source model."""


def finished(kind: Kind) -> list[dict[str, Any]]:
    """The pieces of a kind that have all methods except those they may lack; all pieces if there are none yet.

    Without unfinished pieces the means of all methods are over the same runs.
    """
    pieces = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{kind.name}-*.json"))]
    needed = {parse_method(method).name for method in kind.methods} - set(kind.may_lack)
    return [piece for piece in pieces if needed <= piece["methods"].keys()] or pieces


def finished_with(other: Kind, method: str, kind: Kind) -> list[dict[str, Any]]:
    """The finished pieces of a kind, with a method of another kind where that was run from the same source model."""
    entries, pieces = by_run(finished(other), method), []
    for piece in finished(kind):
        source_models = {entry.get("source_weights") for entry in piece["methods"].values()} - {None}
        entry = entries.get((piece["source"], piece["seed"]), {})
        added = {method: entry} if entry.get("source_weights") in source_models else {}
        pieces.append(piece | {"methods": piece["methods"] | added})
    return pieces


def finished_by_moments(kind: Kind) -> list[dict[str, Any]]:
    """The pieces in which FedWCA and One-hot have the clusters by moments, of this kind and of kind ``digits``.

    Those of kind ``digits`` are the runs in ``kind.known``: their clusters by first layers equal those by moments.
    Source + AdaBN of the others is taken from kind ``moments_source``.

    Raises:
        ValueError: such a piece of kind ``digits`` has One-hot in other clusters.
    """
    pieces, repeats = finished_with(MOMENTS_SOURCE, SOURCE_ADA_BN, kind), []
    for piece in finished(DIGITS) if pieces else []:
        if (piece["source"], piece["seed"]) in kind.known:
            methods_by_moments = {MOMENTS: piece["methods"][MOMENTS], ONE_HOT_BY_MOMENTS: piece["methods"]["one_hot"]}
            if len({tuple(entry["labels"]) for entry in methods_by_moments.values()}) > 1:
                raise ValueError(f"digits-{piece['source']}-{piece['seed']} has other clusters by moments than One-hot")
            untrained = {SOURCE_ADA_BN: piece["methods"][SOURCE_ADA_BN]}
            repeats.append(piece | {"methods": untrained | methods_by_moments})
    return pieces + repeats


def by_run(pieces: Sequence[Mapping[str, Any]], method: str) -> dict[Run, Mapping[str, Any]]:
    """Results of a method by run, without pieces in which none of its trials finished."""
    entries = {(piece["source"], piece["seed"]): piece["methods"].get(method) for piece in pieces}
    return {run: entry for run, entry in entries.items() if entry and entry["accuracy"]}


def means(entries: Mapping[Run, Mapping[str, Any]]) -> dict[Run, float]:
    """Mean accuracy in percent by run, over trials and over clients with test images."""
    return {run: statistics.fmean(map(mean_of_known, entry["accuracy"])) for run, entry in entries.items()}


def by_target(pieces: Sequence[Mapping[str, Any]], method: str) -> dict[tuple[str, int, str], float]:
    """Mean accuracy in percent over clients and trials, by source, seed of the source model and target domain."""
    means_by_place = {}
    for piece in pieces:
        entry = piece["methods"].get(method) or {"accuracy": []}
        trials = [mean_by_domain(piece["domains"], accuracy) for accuracy in entry["accuracy"]]
        for domain in trials[0] if trials else ():
            mean = statistics.fmean(trial[domain] for trial in trials)
            means_by_place[piece["source"], piece["seed"], domain] = mean
    return means_by_place


def label_of(pieces: Sequence[Mapping[str, Any]], method: str) -> str:
    """Label of a method in most of the pieces that have it (the oldest may say it otherwise); its name if none does."""
    labels = [str(piece["methods"][method]["label"]) for piece in pieces if method in piece["methods"]]
    return statistics.mode(labels or [method])


def methods_of_any(pieces: Sequence[Mapping[str, Any]]) -> set[str]:
    """Methods that some piece has."""
    return {method for piece in pieces for method in piece["methods"]}


def methods(pieces: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the methods that any piece has, in the order of `TABLE2` and `BY_MOMENTS`."""
    order = [parse_method(method).name for method in (*TABLE2, *BY_MOMENTS)]
    return sorted({name for piece in pieces for name in piece["methods"]}, key=order.index)
