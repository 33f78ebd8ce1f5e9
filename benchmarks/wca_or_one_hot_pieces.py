"""What the study of `wca_or_one_hot.py` is made of: its cases and its pieces; no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

SEEDS = 5
SETTINGS: dict[str, Any] = {"clients": 4, "samples": 256, "rounds": 8, "epochs": 3, "lr": 0.003}
DATASETS = {"digit_five": "synth", "digits_mini": "handwritten"}
"""Source domain by data set, for cases that name no other."""
METHODS = {"fedwca": "FedWCA", "one_hot": "One-hot"}
UNTRAINED = "Source + AdaBN"
"""Label of the source model with BatchNorm statistics of clients' images, untrained; it has clusters of its own."""
Damage = Literal["merged", "split", "shuffled"]


def damage_clusters(domains: Sequence[int], damage: Damage, share: float = 0.5) -> list[int]:
    """Wrong clusters, numbered from 0, in place of the true domains; see `DamagedDomains` for the kinds of damage.

    >>> damage_clusters([0, 0, 1, 1, 2, 2], "merged")
    [0, 0, 0, 0, 1, 1]
    >>> damage_clusters([0, 0, 1, 1], "split")
    [0, 1, 2, 3]
    >>> sorted(damage_clusters([0, 0, 1, 1], "shuffled", 1.0))
    [0, 0, 1, 1]
    """
    if damage == "merged":
        return [max(domain - 1, 0) for domain in domains]
    if damage == "split":
        last_index: dict[int, int] = {}
        halves = []
        for domain in domains:
            last_index[domain] = last_index.get(domain, -1) + 1
            halves.append(2 * domain + last_index[domain] % 2)
        return [sorted(set(halves)).index(half) for half in halves]
    shuffled = np.random.default_rng(0).permutation(len(domains))[: round(share * len(domains))]
    clusters = list(domains)
    for client, donor in zip(shuffled, np.roll(shuffled, 1), strict=True):
        clusters[client] = domains[donor]
    return clusters


CASES: dict[str, dict[str, Any]] = {
    "true clusters": {},
    "two domains merged": {"clusterer": "damaged_domains:damage=merged"},
    "domains split": {"clusterer": "damaged_domains:damage=split"},
    "a quarter shuffled": {"clusterer": "damaged_domains:damage=shuffled,share=0.25"},
    "half shuffled": {"clusterer": "damaged_domains:damage=shuffled,share=0.5"},
    "all shuffled": {"clusterer": "damaged_domains:damage=shuffled,share=1"},
    "FINCH": {"clusterer": "finch"},
    "FINCH on moments": {"clusterer": "ada_bn"},
    "64 images a client": {"samples": 64},
    "128 images a client": {"samples": 128},
    "2 clients a domain": {"clients": 2},
    "1 client a domain": {"clients": 1},
    "T_a 0.001": {"overrides": {"aggregator.wca.ta": 0.001}},
}
"""Settings that differ from the first case, by name of the case; T_a is 0.01, in the last case the paper's value for
source SYNTH (Table 9)."""
SOURCES = {"digit_five": ("mnistm", "mnist", "usps"), "digits_mini": ("photo", "printed", "street", "neon")}
"""Further source domains; with some of them most labels are wrong."""


@dataclass(frozen=True)
class Piece:
    """One case of one data set and seed."""

    dataset: str
    case: str
    seed: int

    @property
    def name(self) -> str:
        """Name on the command line, and of its folder and its file of results."""
        return f"{self.dataset}-{self.case.replace(' ', '_')}-{self.seed}"

    def settings(self) -> dict[str, Any]:
        """Settings for `fedwca.bench`, except the folder of the data."""
        case = {"source": self.case.removeprefix("source ")} if self.case.startswith("source ") else CASES[self.case]
        settings = {**SETTINGS, "source": DATASETS[self.dataset], "clusterer": "true", **case}
        clusterer = settings.pop("clusterer")
        methods = [f"{label}={name}/clusterer={clusterer}" for name, label in METHODS.items()]
        return {
            **settings,
            "dataset": self.dataset,
            "seed": self.seed,
            "baselines": ["source_only", "source_ada_bn", *methods],
            "composed": False,
        }


def pieces() -> Iterator[Piece]:
    """All pieces of the study, ordered by seed."""
    for seed in range(SEEDS):
        for dataset in DATASETS:
            for case in (*CASES, *(f"source {name}" for name in SOURCES[dataset])):
                yield Piece(dataset, case, seed)
