"""The tables of `wca_or_one_hot.py` in docs/wca-or-one-hot.md; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain, mean_of_known
from readings import PAIR_NOTE, Pair, apart, gains_by_right, noted, on_machines
from wca_or_one_hot_pieces import METHODS, UNTRAINED, pieces

from fedwca.results.statistics import paired_difference
from fedwca.results.tables import MISSING, Cell, Table, mean_cell

RESULTS = Path(__file__).resolve().parent / "results" / "wca_or_one_hot"
NAMES = {"digit_five": "Digit-Five", "digits_mini": "digits-mini"}
NOTHING = "Not measured yet: `python benchmarks/wca_or_one_hot.py`."
WCA, ONE_HOT = METHODS.values()

LOSES = "neon"
"""The domain of digits-mini in which mixing from the first source domain loses most."""

Piece = dict[str, Any]
ByDomain = dict[tuple[int, str], float]
"""A number by seed and domain."""


def finished() -> list[Piece]:
    """Results of the finished pieces, in the order in which they are run."""
    files = [RESULTS / f"{piece.name}.json" for piece in pieces()]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def cases_of(results: Sequence[Piece], dataset: str) -> list[str]:
    """Names of the cases of a data set that have results, in order."""
    return list(dict.fromkeys(piece["case"] for piece in results if piece["dataset"] == dataset))


def select(results: Sequence[Piece], dataset: str, case: str) -> list[Piece]:
    """Results of one case, ordered by seed."""
    return [piece for piece in results if (piece["dataset"], piece["case"]) == (dataset, case)]


def hardware(results: Sequence[Piece]) -> str:
    """The hardware that pieces were run on, as a sentence."""
    return on_machines(piece["environment"] for piece in results)


def mean_accuracy(piece: Piece, method: str) -> float:
    """Mean accuracy over clients in percent after the last round."""
    return mean_of_known(piece[method]["accuracy"])


def by_seed(results: Sequence[Piece], method: str) -> dict[int, float]:
    """Mean accuracy over clients in percent by seed."""
    return {piece["seed"]: mean_accuracy(piece, method) for piece in results}


def level(results: Sequence[Piece], method: str) -> Cell:
    """Mean accuracy over seeds; missing if a result lacks the method."""
    if not all(method in piece for piece in results):
        return MISSING
    return mean_cell(statistics.fmean(by_seed(results, method).values()))


def right_labels(piece: Piece, method: str, index: int) -> float:
    """Share of right labels in percent, mean over clients; index 0 is round 1, index 1 the last round."""
    return mean_of_known(piece[method]["right"][index])


def cases(dataset: str) -> str:
    """One row per case: accuracies, the paired difference, right labels, and the mixing weights of the clients."""
    results = finished()
    lines = []
    for case in cases_of(results, dataset):
        case_results = select(results, dataset, case)
        levels = [level(case_results, method) for method in (WCA, ONE_HOT, UNTRAINED)]
        difference = apart(paired_difference(by_seed(case_results, WCA), by_seed(case_results, ONE_HOT)))
        right = [
            mean_cell(statistics.fmean(right_labels(piece, WCA, index) for piece in case_results)) for index in (0, 1)
        ]
        ari = mean_cell(statistics.fmean(piece[WCA]["ari"] for piece in case_results), digits=2)
        weights = [statistics.fmean(piece[name][-1] for piece in case_results) for name in ("alpha_own", "beta_own")]
        lines.append([case, ari, *levels, difference, *right, *(mean_cell(weight, digits=2) for weight in weights)])
    if not lines:
        return NOTHING
    heads = (
        "case",
        "ARI",
        "FedWCA",
        "One-hot",
        UNTRAINED,
        "FedWCA minus One-hot",
        "labels right, round 1",
        "last round",
        "α of the own cluster",
        "β of the own model",
    )
    pieces = [piece for piece in results if piece["dataset"] == dataset]
    setting = pieces[0]["settings"]
    own = [entry["environment"] for piece in pieces if "environment" in (entry := piece.get(UNTRAINED, {}))]
    told = f"{UNTRAINED} was run later with the same seeds; whether from the same source models is not recorded."
    later = [f"{told} {on_machines(own)}"] if own else []
    notes = [
        "Percent, means over clients and seeds; differences are paired by seed, with their 95 % interval (Student's t)",
        "and n; **bold** where it excludes 0. Labels, α (eq. 1) and β (eq. 3) are FedWCA's, α and β of the last round.",
        f"{setting['clients']} clients per target domain, at most {setting['samples']} images each before the split,",
        f"{setting['rounds']} rounds of {setting['epochs']} epochs, learning rate {setting['lr']}, source",
        f"{setting['source']}, but for what a case says. {hardware(pieces)}",
        *later,
        "Configurations: `benchmarks/results/wca_or_one_hot`.",
    ]
    return noted(Table("", heads, lines), notes)


def beside_first_layers() -> str:
    """One row per clustering: what FedWCA and One-hot gain over FINCH's clusters of first layers, paired by seed."""
    other_cases = ("FINCH on moments", "true clusters")
    results = [piece for piece in finished() if piece["case"] in ("FINCH", *other_cases)]
    lines = []
    for case in other_cases:
        row: list[Any] = [case]
        for dataset in NAMES:
            case_results, finch_results = (select(results, dataset, name) for name in (case, "FINCH"))
            shared_seeds = {piece["seed"] for piece in case_results} & {piece["seed"] for piece in finch_results}
            for method in (WCA, ONE_HOT):
                case_means, finch_means = (
                    by_seed([piece for piece in group if piece["seed"] in shared_seeds], method)
                    for group in (case_results, finch_results)
                )
                row.append(apart(paired_difference(case_means, finch_means)) if shared_seeds else MISSING)
        lines.append(row)
    heads = ("clusters", *(f"{name}, {method}" for name in NAMES.values() for method in (WCA, ONE_HOT)))
    notes = [
        "Minus the same method in FINCH's clusters of first layers; as above.",
        *([hardware(results)] if results else []),
    ]
    return noted(Table("", heads, lines), notes)


def with_true_clusters(results: Sequence[Piece]) -> list[Piece]:
    """Results with true clusters."""
    return [piece for piece in results if piece["case"] == "true clusters" or piece["case"].startswith("source ")]


def points(results: Sequence[Piece], by_source: bool = False) -> list[tuple[Pair, float, float]]:
    """One point for each target domain, seed and source domain with true clusters.

    A point is ((source domain, target domain), percent of right labels in round 1, FedWCA minus One-hot in points).

    Args:
        results: of any cases.
        by_source: whether to give the accuracy of the untouched source model in place of right labels.
    """
    values = []
    for piece in with_true_clusters(results):
        right = mean_by_domain(piece["domains"], piece["source_accuracy"] if by_source else piece[WCA]["right"][0])
        wca_means, one_hot_means = (
            mean_by_domain(piece["domains"], piece[method]["accuracy"]) for method in (WCA, ONE_HOT)
        )
        values += [
            ((piece["settings"]["source"], domain), right[domain], wca_means[domain] - one_hot_means[domain])
            for domain in wca_means
        ]
    return values


def labels(by_source: bool = False) -> str:
    """FedWCA minus One-hot by the share of right labels in a domain, or by the source model's accuracy there."""
    results = finished()
    by_dataset = [points([piece for piece in results if piece["dataset"] == dataset], by_source) for dataset in NAMES]
    lines = gains_by_right(by_dataset)
    if not results:
        return NOTHING
    notes = [
        f"FedWCA minus One-hot with true clusters, {PAIR_NOTE}, with its 95 %",
        "interval over pairs (Student's t) and n; **bold** where it excludes 0. "
        f"{hardware(with_true_clusters(results))}",
    ]
    heads = ("the source model is right" if by_source else "right labels in round 1", *NAMES.values())
    return noted(Table("", heads, lines), notes)


def domains() -> str:
    """FedWCA minus One-hot of digits-mini from its first source domain, by case and target domain.

    There is one row per case and one column per target domain; the last column is the mean without `LOSES`.
    """
    results = [piece for piece in finished() if piece["dataset"] == "digits_mini"]
    results = [piece for piece in results if not piece["case"].startswith("source ")]
    if not results:
        return NOTHING
    names = sorted(set(results[0]["domains"]))
    lines = []
    for case in cases_of(results, "digits_mini"):
        case_results = select(results, "digits_mini", case)
        means = {
            (method, piece["seed"]): mean_by_domain(piece["domains"], piece[method]["accuracy"])
            for piece in case_results
            for method in (WCA, ONE_HOT)
        }
        gains = {
            piece["seed"]: {
                name: means[WCA, piece["seed"]][name] - means[ONE_HOT, piece["seed"]][name] for name in names
            }
            for piece in case_results
        }
        row = [case, *(f"{statistics.fmean(gain[name] for gain in gains.values()):+.2f}" for name in names)]
        mean_gains = {
            seed: statistics.fmean(gain[name] for name in names if name != LOSES) for seed, gain in gains.items()
        }
        lines.append([*row, apart(paired_difference(mean_gains, dict.fromkeys(mean_gains, 0.0)))])
    source = results[0]["settings"]["source"]
    notes = [
        f"FedWCA minus One-hot from {source}, in points; the last column is paired by seed, as above.",
        hardware(results),
    ]
    return noted(Table("", ("case", *names, f"all but {LOSES}"), lines), notes)


BLOCKS: dict[str, Callable[[], str]] = {
    "wca-or-one-hot-digit_five": lambda: cases("digit_five"),
    "wca-or-one-hot-digits_mini": lambda: cases("digits_mini"),
    "wca-or-one-hot-domains": domains,
    "wca-or-one-hot-clusters": beside_first_layers,
    "wca-or-one-hot-labels": labels,
    "wca-or-one-hot-source": lambda: labels(by_source=True),
}
