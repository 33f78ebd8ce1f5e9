"""What the two tests of FedTAB are made of (docs/fedtab-*-test.md): pieces and rows; no script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
"""Methods by label; those that decide a rule or a default come first."""
RECALIBRATED = "recalibrated FedWCA"
STOP = math.inf
SECOND_LABELER = "trusted:untrusted=0.33,untrained=mean"
SECOND_ABLATIONS = {
    "first FedTAB": "fedtab",
    "no plain images": "fedtab/pseudo_labeler=trusted:untrained=mean",
    "source where nobody trains": "fedtab/pseudo_labeler=trusted:untrusted=0.33",
    "untrusted plain": ABLATIONS["untrusted plain"],
    "gated FedAvg": f"fedavg/pseudo_labeler={SECOND_LABELER}/objectives=strong_views",
    "gated FedSCAl": f"fedscal/pseudo_labeler={SECOND_LABELER},{SHOT_LABELS}",
    "plain from 25 hundredths": "fedtab/pseudo_labeler=trusted:untrusted=0.25,untrained=mean",
    "plain from 4 tenths": "fedtab/pseudo_labeler=trusted:untrusted=0.4,untrained=mean",
    "least 4 tenths": f"fedtab/pseudo_labeler={SECOND_LABELER},least=0.4",
    "least 6 tenths": f"fedtab/pseudo_labeler={SECOND_LABELER},least=0.6",
}
"""Ablations of the second test, likewise."""


@dataclass(frozen=True)
class Gate:
    """Thresholds of I that decide which images a client trains on."""

    strong: float
    """Clients with at least this I train on strong views, too."""
    plain: float = STOP
    """Other clients with at least this I train on plain images; the rest do not train."""
    mean: bool = False
    """Whether a cluster without training clients takes the mean of the models that others trained."""

    def levels(self, trust: Sequence[float]) -> list[float]:
        """Trust levels of clients by their I: 1 (strong views), 1/2 (plain images) or 0 (no training).

        >>> Gate(0.5, 0.25).levels([0.6, 0.3, 0.1])
        [1.0, 0.5, 0.0]
        """
        return [1.0 if value >= self.strong else 0.5 * (value >= self.plain) for value in trust]

    def decides_as(self, other: Gate, trust: Sequence[float]) -> bool:
        """Whether another gate has the same effect on clients with these values of I."""
        levels = self.levels(trust)
        return levels == other.levels(trust) and (self.mean == other.mean or 0 not in levels)


@dataclass(frozen=True)
class Plan:
    """One of the two tests: the variant of FedTAB, and the methods that it is compared with."""

    prefix: str
    """Prefix of the kinds of its pieces."""
    method: str
    """The variant that is tested, as `baselines` takes it."""
    gate: Gate
    """Gate of ``method``."""
    ablations: Mapping[str, str]
    gates: Mapping[str, Gate]
    """Gates of ablations that differ from ``method`` in nothing else."""
    recalibrated: bool = False
    """Whether FedWCA with recalibrated BatchNorm is a row."""

    @property
    def main(self) -> list[str]:
        """Methods of the run ``main``: the tested one, and those it is compared with."""
        return [self.method, *MAIN[1:]]

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs of a piece; an ablation's run has its label as name."""
        return ("main", "twice", *self.ablations, *([RECALIBRATED] if self.recalibrated else []))


FIRST = Plan(
    "",
    "fedtab",
    Gate(0.5),
    ABLATIONS,
    {
        "no gate": Gate(0.0),
        "untrusted plain": Gate(0.5, 0.0),
        "least 4 tenths": Gate(0.4),
        "least 6 tenths": Gate(0.6),
    },
    recalibrated=True,
)
SECOND = Plan(
    "second-",
    f"FedTAB=fedtab/pseudo_labeler={SECOND_LABELER}",
    Gate(0.5, 0.33, True),
    SECOND_ABLATIONS,
    {
        "first FedTAB": Gate(0.5),
        "no plain images": Gate(0.5, mean=True),
        "source where nobody trains": Gate(0.5, 0.33),
        "untrusted plain": Gate(0.5, 0.0),
        "plain from 25 hundredths": Gate(0.5, 0.25, True),
        "plain from 4 tenths": Gate(0.5, 0.4, True),
        "least 4 tenths": Gate(0.4, 0.33, True),
        "least 6 tenths": Gate(0.6, 0.33, True),
    },
)


def plan_of(kind: str) -> Plan:
    """The test that a kind of pieces belongs to."""
    return SECOND if kind.startswith(SECOND.prefix) else FIRST


RUNS = tuple(dict.fromkeys((*FIRST.runs, *SECOND.runs)))
SOURCE, BESIDE, TRUSTED = "source model", "beside", "trusted by confidence"
"""Further run folders: the source model that ablations start from, FedTAB from that model, and the shortest run that
tells whom confidence trusts."""
DIGITS: dict[str, Any] = {"dataset": "digit_five", "clients": 4, "samples": 400, "rounds": 10, "epochs": 5}
EMBEDDED: dict[str, Any] = {**DIGITS, "dataset": "digits_mini", "lr": 0.003}
PACS: dict[str, Any] = {**DIGITS, "dataset": "pacs", "clients": 3, "samples": 240, "lr": 0.001}
DIGIT_SOURCES = ("synth", "mnistm", "mnist", "usps")
EMBEDDED_SOURCES = ("handwritten", "photo", "printed", "street", "neon")
PACS_SOURCES = ("art_painting", "cartoon", "photo", "sketch")
SMALL: dict[str, Any] = {"clients": 2, "samples": 40, "rounds": 1, "epochs": 1}
"""Settings to rehearse a piece."""


@dataclass(frozen=True)
class Piece:
    """One source and one seed, with all methods of a test."""

    kind: str
    source: str
    seed: int
    settings: dict[str, Any]
    plan: Plan = FIRST

    @property
    def name(self) -> str:
        """Its name on the command line, which is also that of its folder."""
        rate = f"-{self.settings['lr']:g}" if self.kind.endswith("digits") else ""
        return f"{self.kind}-{self.source}-{self.seed}{rate}"

    def runs(self) -> dict[str, dict[str, Any]]:
        """Settings of its run folders by name: the plan's runs, ``main`` first, and those that ablations need."""
        common = {**self.settings, "source": self.source, "seed": self.seed, "composed": False}
        return {
            "main": {**common, "baselines": self.plan.main},
            "twice": {
                **common,
                "baselines": ["FedWCA twice the epochs=fedwca", "One-hot twice the epochs=one_hot"],
                "epochs": 2 * common["epochs"],
            },
            **{label: {**common, "baselines": [f"{label}={method}"]} for label, method in self.plan.ablations.items()},
            SOURCE: {**common, "baselines": ["source_only"]},
            BESIDE: {**common, "baselines": [self.plan.method, "source_ada_bn"]},
            TRUSTED: {**common, "baselines": [ABLATIONS["confidence"]], "rounds": 1, "epochs": 1},
            RECALIBRATED: {**common, "baselines": [f"{RECALIBRATED}=fedwca"], "batch_norm": "recalibrated"},
        }


def pieces() -> Iterator[Piece]:
    """All pieces of both tests."""
    for rate, seed, source in product((0.003, 0.001), range(10, 15), DIGIT_SOURCES):
        yield Piece("digits", source, seed, {**DIGITS, "lr": rate})
    for seed, source in product(range(110, 115), EMBEDDED_SOURCES):
        yield Piece("embedded", source, seed, EMBEDDED)
    for seed, source in product(range(10, 13), PACS_SOURCES):
        yield Piece("pacs", source, seed, PACS)
    for seed, source in product(range(10, 15), DIGIT_SOURCES):
        yield Piece("skewed", source, seed, {**DIGITS, "lr": 0.003, "partition": "skewed_domains:alpha=0.3,least=20"})
    for rate, seed, source in product((0.003, 0.001), range(20, 25), DIGIT_SOURCES):
        yield Piece("second-digits", source, seed, {**DIGITS, "lr": rate}, SECOND)
    for seed, source in product(range(120, 125), EMBEDDED_SOURCES):
        yield Piece("second-embedded", source, seed, EMBEDDED, SECOND)
    for seed, source in product(range(20, 23), PACS_SOURCES):
        yield Piece("second-pacs", source, seed, PACS, SECOND)
