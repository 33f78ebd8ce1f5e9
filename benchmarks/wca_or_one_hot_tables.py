"""The tables of `wca_or_one_hot.py` in docs/wca-or-one-hot.md; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain, mean_of_known
from readings import apart, gains_by_right, noted, on_machines
from wca_or_one_hot_pieces import METHODS, UNTRAINED, pieces

from fedwca.results.statistics import paired_difference
from fedwca.results.tables import MISSING, Cell, Table, mean_cell

RESULTS = Path(__file__).resolve().parent / "results" / "wca_or_one_hot"
NAMES = {"digit_five": "Digit-Five", "digits_mini": "digits-mini"}
NOTHING = "Not measured yet: `python benchmarks/wca_or_one_hot.py`."
WCA, ONE_HOT = METHODS.values()

LOSES = "neon"
"""The domain of digits-mini in which mixing loses most from the first source."""

Piece = dict[str, Any]
ByDomain = dict[tuple[int, str], float]
"""A number by seed and domain."""


def finished() -> list[Piece]:
    """Pieces that are done, cases in the order in which they are run."""
    files = [RESULTS / f"{piece.name}.json" for piece in pieces()]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def cases_of(found: Sequence[Piece], dataset: str) -> list[str]:
    """Cases of a data set that are done, in order."""
    return list(dict.fromkeys(piece["case"] for piece in found if piece["dataset"] == dataset))


def select(found: Sequence[Piece], dataset: str, case: str) -> list[Piece]:
    """Pieces of one case, by seed."""
    return [piece for piece in found if (piece["dataset"], piece["case"]) == (dataset, case)]


def hardware(found: Sequence[Piece]) -> str:
    """On what pieces were run."""
    return on_machines(piece["environment"] for piece in found)


def mean_accuracy(piece: Piece, method: str) -> float:
    """Mean over clients in percent after the last round."""
    return mean_of_known(piece[method]["accuracy"])


def by_seed(found: Sequence[Piece], method: str) -> dict[int, float]:
    """Mean over clients by seed."""
    return {piece["seed"]: mean_accuracy(piece, method) for piece in found}


def level(found: Sequence[Piece], method: str) -> Cell:
    """Mean over seeds; missing where a seed was not measured."""
    if not all(method in piece for piece in found):
        return MISSING
    return mean_cell(statistics.fmean(by_seed(found, method).values()))


def right_labels(piece: Piece, method: str, place: int) -> float:
    """Share of right labels in percent, mean over clients; place 0 is round 1, place 1 the last."""
    return mean_of_known(piece[method]["right"][place])


def cases(dataset: str) -> str:
    """A row a case: levels, the paired difference, right labels, and what weights the clients used."""
    found = finished()
    lines = []
    for case in cases_of(found, dataset):
        own = select(found, dataset, case)
        levels = [level(own, method) for method in (WCA, ONE_HOT, UNTRAINED)]
        beside = apart(paired_difference(by_seed(own, WCA), by_seed(own, ONE_HOT)))
        right = [mean_cell(statistics.fmean(right_labels(piece, WCA, place) for piece in own)) for place in (0, 1)]
        ari = mean_cell(statistics.fmean(piece[WCA]["ari"] for piece in own), digits=2)
        weights = [statistics.fmean(piece[name][-1] for piece in own) for name in ("alpha_own", "beta_own")]
        lines.append([case, ari, *levels, beside, *right, *(mean_cell(weight, digits=2) for weight in weights)])
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
    piece = next(piece for piece in found if piece["dataset"] == dataset)
    setting, machine = piece["settings"], piece["environment"]
    notes = [
        "Percent, means over clients and seeds; differences are paired by seed, with their 95 % interval (Student's t)",
        "and n; **bold** where it excludes 0. Labels, α (eq. 1) and β (eq. 3) are FedWCA's, α and β of the last round.",
        f"{setting['clients']} clients per target domain, at most {setting['samples']} images each before the split,",
        f"{setting['rounds']} rounds of {setting['epochs']} epochs, learning rate {setting['lr']}, source",
        f"{setting['source']}, but for what a case says; {machine['cores']} cores of {machine['cpu']}.",
        "Configurations: `benchmarks/results/wca_or_one_hot`.",
    ]
    return noted(Table("", heads, lines), notes).replace(r"\*\*", "**")  # what is bold in a cell is so on purpose


def beside_first_layers() -> str:
    """What FedWCA and One-hot gain when clusters are others than FINCH's on first layers, paired by seed."""
    others = ("FINCH on moments", "true clusters")
    found = [piece for piece in finished() if piece["case"] in ("FINCH", *others)]
    lines = []
    for case in others:
        row: list[Any] = [case]
        for dataset in NAMES:
            ours, theirs = (select(found, dataset, name) for name in (case, "FINCH"))
            both = {piece["seed"] for piece in ours} & {piece["seed"] for piece in theirs}
            for method in (WCA, ONE_HOT):
                own, other = (
                    by_seed([piece for piece in some if piece["seed"] in both], method) for some in (ours, theirs)
                )
                row.append(apart(paired_difference(own, other)) if both else MISSING)
        lines.append(row)
    heads = ("clusters", *(f"{name}, {method}" for name in NAMES.values() for method in (WCA, ONE_HOT)))
    notes = [
        "Minus the same method in FINCH's clusters of first layers; as above.",
        *([hardware(found)] if found else []),
    ]
    return noted(Table("", heads, lines), notes).replace(r"\*\*", "**")


def with_true_clusters(found: Sequence[Piece]) -> list[Piece]:
    """Pieces whose clusters are the true ones."""
    return [piece for piece in found if piece["case"] == "true clusters" or piece["case"].startswith("source ")]


def points(found: Sequence[Piece], by_source: bool = False) -> list[tuple[str, float, float]]:
    """Of each domain, seed and source with true clusters: its name, right labels in round 1, FedWCA minus One-hot.

    Args:
        found: pieces.
        by_source: accuracy of the untouched source model in place of right labels.
    """
    given = []
    for piece in with_true_clusters(found):
        right = mean_by_domain(piece["domains"], piece["source_accuracy"] if by_source else piece[WCA]["right"][0])
        ours, theirs = (mean_by_domain(piece["domains"], piece[method]["accuracy"]) for method in (WCA, ONE_HOT))
        given += [(domain, right[domain], ours[domain] - theirs[domain]) for domain in ours]
    return given


def labels(by_source: bool = False) -> str:
    """FedWCA minus One-hot over how many labels of a domain are right, or over the source model's accuracy there."""
    found = finished()
    by_dataset = [points([piece for piece in found if piece["dataset"] == dataset], by_source) for dataset in NAMES]
    lines = gains_by_right([[(right, gain) for _, right, gain in own] for own in by_dataset])
    if not found:
        return NOTHING
    notes = [
        "FedWCA minus One-hot with true clusters, a value for each domain, source and seed, with its 95 % interval",
        f"(Student's t; values of one run share its source model) and n. {hardware(with_true_clusters(found))}",
    ]
    heads = ("the source model is right" if by_source else "right labels in round 1", *NAMES.values())
    return noted(Table("", heads, lines), notes).replace(r"\*\*", "**")


def domains() -> str:
    """FedWCA minus One-hot of digits-mini from its first source, by domain, and without the one that loses most."""
    found = [piece for piece in finished() if piece["dataset"] == "digits_mini"]
    found = [piece for piece in found if not piece["case"].startswith("source ")]
    if not found:
        return NOTHING
    names = sorted(set(found[0]["domains"]))
    lines = []
    for case in cases_of(found, "digits_mini"):
        own = select(found, "digits_mini", case)
        means = {
            (method, piece["seed"]): mean_by_domain(piece["domains"], piece[method]["accuracy"])
            for piece in own
            for method in (WCA, ONE_HOT)
        }
        gains = {
            piece["seed"]: {
                name: means[WCA, piece["seed"]][name] - means[ONE_HOT, piece["seed"]][name] for name in names
            }
            for piece in own
        }
        row = [case, *(f"{statistics.fmean(gain[name] for gain in gains.values()):+.2f}" for name in names)]
        others = {seed: statistics.fmean(gain[name] for name in names if name != LOSES) for seed, gain in gains.items()}
        lines.append([*row, apart(paired_difference(others, dict.fromkeys(others, 0.0)))])
    source = found[0]["settings"]["source"]
    notes = [
        f"FedWCA minus One-hot from {source}, in points; the last column is paired by seed, as above.",
        hardware(found),
    ]
    return noted(Table("", ("case", *names, f"all but {LOSES}"), lines), notes).replace(r"\*\*", "**")


BLOCKS: dict[str, Callable[[], str]] = {
    "wca-or-one-hot-digit_five": lambda: cases("digit_five"),
    "wca-or-one-hot-digits_mini": lambda: cases("digits_mini"),
    "wca-or-one-hot-domains": domains,
    "wca-or-one-hot-clusters": beside_first_layers,
    "wca-or-one-hot-labels": labels,
    "wca-or-one-hot-source": lambda: labels(by_source=True),
}
