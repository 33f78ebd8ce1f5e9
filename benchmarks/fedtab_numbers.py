"""The records of `benchmarks/fedtab.py`, and the numbers that its tables and rules compare; no script."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain, mean_of_known
from fedtab_pieces import EMBEDDED_SOURCES, PACS_SOURCES, Plan, pieces, plan_of

from fedwca.results.statistics import Difference, paired_difference

RESULTS = Path(__file__).resolve().parent / "results" / "fedtab"
OWN, HARM = "FedTAB", "Source + AdaBN"
RIVALS = ("FedWCA", "FedSCAl")
EQUAL_COMPUTE = ("FedWCA twice the epochs", "One-hot twice the epochs")
THRESHOLDS = {
    "least 4 tenths": "0.4",
    "least 6 tenths": "0.6",
    "plain from 25 hundredths": "0.25 for plain images",
    "plain from 4 tenths": "0.4 for plain images",
}
PARTS = {"gated FedAvg": "clusters are", "gated FedSCAl": "strong views and clusters, beside the gate, are"}
"""What a row tests; it is shown to be needed if FedTAB is above the row with an interval that excludes 0."""
PLAIN = "untrusted plain"
UNSEEN = {
    "digits": ("usps",),
    "skewed": ("usps",),
    "embedded": EMBEDDED_SOURCES,
    "pacs": PACS_SOURCES,
}
"""Sources that FedTAB was not designed on."""

Found = Mapping[str, Any]


def every_piece() -> list[Found]:
    """Records of all pieces that are done, in whole or in part."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def finished(plan: Plan) -> dict[str, list[Found]]:
    """Records of one test whose run ``main`` is done, by kind and learning rate; each group is one table."""
    groups = defaultdict(list)
    for piece in every_piece():
        if "main" not in piece["runs"] or plan_of(piece["kind"]) is not plan:
            continue  # only ablations, without the methods that they are compared with
        groups[f"{piece['kind']}, learning rate {piece['lr']:g}"].append(piece)
    return dict(groups)


def whole_seeds(records: Sequence[Found]) -> dict[int, list[Found]]:
    """Records by seed, for seeds that have every source."""
    all_sources = {piece.source for piece in pieces() if piece.kind == records[0]["kind"]}
    seeds: dict[int, list[Found]] = defaultdict(list)
    for piece in records:
        seeds[piece["seed"]].append(piece)
    return {
        seed: seed_pieces
        for seed, seed_pieces in sorted(seeds.items())
        if {piece["source"] for piece in seed_pieces} == all_sources
    }


def measured(records: Sequence[Found]) -> list[str]:
    """Methods that every piece has; some pieces may lack ablations, which run after ``main``."""
    return [name for name in records[0]["methods"] if all(name in piece["methods"] for piece in records)]


def mean_of(piece: Found, method: str) -> float:
    """Mean accuracy of a method in a piece over clients with test images."""
    return mean_of_known(piece["methods"][method]["accuracy"])


def base_of(piece: Found, method: str) -> Found:
    """Results of FedTAB and Source + AdaBN from the same source model as a method in this piece."""
    source = source_of(piece["methods"][method])
    base: Found = piece if source in (None, source_of(piece)) else piece["beside"][source]
    return base


def source_of(entry: Mapping[str, Any]) -> str | None:
    """Checksum of the source model's weights; earlier results have a hash of its recipe, the first ones None."""
    return entry.get("source_weights") or entry.get("source_digest")


def by_seed(seeds: Mapping[int, Sequence[Found]], method: str) -> dict[int, float]:
    """Mean accuracy of a method over sources by seed, which is what comparisons use."""
    return {
        seed: statistics.fmean(mean_of(piece, method) for piece in seed_pieces) for seed, seed_pieces in seeds.items()
    }


def own_by_seed(seeds: Mapping[int, Sequence[Found]], method: str) -> dict[int, float]:
    """FedTAB's mean accuracy by seed, from the same source models as a method."""
    return by_seed(
        {seed: [base_of(piece, method) for piece in seed_pieces] for seed, seed_pieces in seeds.items()}, OWN
    )


def difference(seeds: Mapping[int, Sequence[Found]], method: str) -> Difference:
    """FedTAB minus a method, from the same source models and paired by seed."""
    result = paired_difference(own_by_seed(seeds, method), by_seed(seeds, method))
    assert result is not None
    return result


def harmed(seeds: Mapping[int, Sequence[Found]], method: str) -> float:
    """Share of (seed, source, domain) in which a method ends below Source + AdaBN."""
    below = []
    for piece in (piece for seed_pieces in seeds.values() for piece in seed_pieces):
        accuracy, base_accuracy = (
            mean_by_domain(piece["domains"], record["methods"][name]["accuracy"])
            for record, name in ((piece, method), (base_of(piece, method), HARM))
        )
        below += [accuracy[domain] < base_accuracy[domain] for domain in accuracy]
    return statistics.fmean(below)


def worst(seeds: Mapping[int, Sequence[Found]], method: str) -> float:
    """Mean over pieces of the lowest mean accuracy of a domain."""
    records = (piece for seed_pieces in seeds.values() for piece in seed_pieces)
    return statistics.fmean(
        min(mean_by_domain(piece["domains"], piece["methods"][method]["accuracy"]).values()) for piece in records
    )


def lost_seeds(seeds: Mapping[int, Sequence[Found]]) -> int:
    """Number of seeds in which FedTAB ends over 2 points below Source + AdaBN in a domain with a client that trains.

    In the first test only trusted clients train.
    """
    lost = 0
    for seed_pieces in seeds.values():
        gaps = []
        for piece in seed_pieces:
            accuracy, base_accuracy = (
                mean_by_domain(piece["domains"], piece["methods"][name]["accuracy"]) for name in (OWN, HARM)
            )
            levels = plan_of(piece["kind"]).gate.levels(piece["trust"])
            trains = mean_by_domain(piece["domains"], levels)
            gaps += [base_accuracy[domain] - accuracy[domain] for domain in accuracy if trains[domain] > 0]
        lost += max(gaps, default=0.0) > 2
    return lost


def moved(seeds: Mapping[int, Sequence[Found]], method: str, sources: Sequence[str]) -> float:
    """Mean over the pieces of some sources of a method's accuracy minus FedTAB's."""
    records = [piece for seed_pieces in seeds.values() for piece in seed_pieces if piece["source"] in sources]
    return statistics.fmean(mean_of(piece, method) - mean_of(base_of(piece, method), OWN) for piece in records)


def is_above(seeds: Mapping[int, Sequence[Found]], method: str) -> bool:
    """Whether FedTAB is above a method with an interval that excludes 0."""
    return excludes_zero(difference(seeds, method))


def is_above_both(seeds: Mapping[int, Sequence[Found]]) -> bool:
    """Whether FedTAB is above each of `RIVALS`; one that diverged in a piece cannot be compared, so then it is not."""
    rows = measured([piece for seed_pieces in seeds.values() for piece in seed_pieces])
    return all(rival in rows and is_above(seeds, rival) for rival in RIVALS)


def excludes_zero(gap: Difference) -> bool:
    """Whether the whole interval of a difference is above 0."""
    return gap.low is not None and gap.low > 0


def is_digits(kind: str) -> bool:
    """Whether a kind of pieces is digits, which the claim is about."""
    return kind.partition(",")[0].endswith("digits")


def has_all_seeds(seeds: Mapping[int, Sequence[Found]]) -> bool:
    """Whether every seed of the test has every source."""
    return set(seeds) == planned_seeds(seeds)


def planned_seeds(seeds: Mapping[int, Sequence[Found]]) -> set[int]:
    """Seeds that the test has of this kind of pieces."""
    (kind,) = {piece["kind"] for seed_pieces in seeds.values() for piece in seed_pieces}
    return {piece.seed for piece in pieces() if piece.kind == kind}
