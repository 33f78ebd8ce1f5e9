"""What the test of FedTAB is made of (docs/fedtab.md): its pieces and its rows; no script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

MAIN = ["fedtab", "fedwca", "fedscal", "one_hot", "fedavg", "local", "source_only", "source_ada_bn"]
SHOT_LABELS = "renew=epoch,min_count=1,append_one=true,normalize_first=true"
ABLATIONS = {
    "untrusted plain": "fedtab/pseudo_labeler=trusted:untrusted=plain",
    "gated FedAvg": "fedavg/pseudo_labeler=trusted/objectives=strong_views",
    "gated FedSCAl": f"fedscal/pseudo_labeler=trusted:{SHOT_LABELS}",
    "no gate": "fedtab/pseudo_labeler=prototype",
    "least 4 tenths": "fedtab/pseudo_labeler=trusted:least=0.4",
    "least 6 tenths": "fedtab/pseudo_labeler=trusted:least=0.6",
    "gated WCA": "wca/clusterer=ada_bn/pseudo_labeler=trusted/objectives=strong_views",
    "first layers": "fedtab/clusterer=finch",
    "true clusters": "fedtab/clusterer=true",
    "no strong views": "fedtab/objectives=shot:lam=1.3",
    "confidence": "fedtab/pseudo_labeler=trusted:measure=confidence",
    "predicted class": "fedtab/pseudo_labeler=trusted:labels=predicted",
}
"""Methods by label, what decides a rule or the default first."""
RECALIBRATED = "recalibrated FedWCA"
RUNS = ("main", "twice", *ABLATIONS, RECALIBRATED)
"""Runs of a piece; each ablation is one by its label."""
SOURCE, BESIDE = "source model", "beside"
"""Further run folders: what ablations start from, and FedTAB from there."""
DIGITS: dict[str, Any] = {"dataset": "digit_five", "clients": 4, "samples": 400, "rounds": 10, "epochs": 5}
EMBEDDED: dict[str, Any] = {**DIGITS, "dataset": "digits_mini", "lr": 0.003}
PACS: dict[str, Any] = {**DIGITS, "dataset": "pacs", "clients": 3, "samples": 240, "lr": 0.001}
DIGIT_SOURCES = ("synth", "mnistm", "mnist", "usps")
EMBEDDED_SOURCES = ("handwritten", "photo", "printed", "street", "neon")
PACS_SOURCES = ("art_painting", "cartoon", "photo", "sketch")
SMALL: dict[str, Any] = {"clients": 2, "samples": 40, "rounds": 1, "epochs": 1}
"""To rehearse a piece."""


@dataclass(frozen=True)
class Piece:
    """One source, one seed, all rows."""

    kind: str
    source: str
    seed: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """As it is asked for, and its folder is called."""
        rate = f"-{self.settings['lr']:g}" if self.kind == "digits" else ""
        return f"{self.kind}-{self.source}-{self.seed}{rate}"

    def runs(self) -> dict[str, dict[str, Any]]:
        """Settings of its run folders by name, a key of `RUNS` each: what is claimed comes first."""
        own = {**self.settings, "source": self.source, "seed": self.seed, "composed": False}
        return {
            "main": {**own, "baselines": MAIN},
            "twice": {
                **own,
                "baselines": ["FedWCA twice the epochs=fedwca", "One-hot twice the epochs=one_hot"],
                "epochs": 2 * own["epochs"],
            },
            **{label: {**own, "baselines": [f"{label}={method}"]} for label, method in ABLATIONS.items()},
            SOURCE: {**own, "baselines": ["source_only"]},
            BESIDE: {**own, "baselines": ["fedtab", "source_ada_bn"]},
            RECALIBRATED: {**own, "baselines": [f"{RECALIBRATED}=fedwca"], "batch_norm": "recalibrated"},
        }


def pieces() -> Iterator[Piece]:
    """All of the test."""
    for rate, seed, source in product((0.003, 0.001), range(10, 15), DIGIT_SOURCES):
        yield Piece("digits", source, seed, {**DIGITS, "lr": rate})
    for seed, source in product(range(110, 115), EMBEDDED_SOURCES):
        yield Piece("embedded", source, seed, EMBEDDED)
    for seed, source in product(range(10, 13), PACS_SOURCES):
        yield Piece("pacs", source, seed, PACS)
    for seed, source in product(range(10, 15), DIGIT_SOURCES):
        yield Piece("skewed", source, seed, {**DIGITS, "lr": 0.003, "partition": "skewed_domains:alpha=0.3,least=20"})
