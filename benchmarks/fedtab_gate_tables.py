"""Whether the gate of FedTAB is right, from `fedtab_gate.py`: a table of docs/fedtab.md; no script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from domain_means import mean_by_domain
from fedtab_pieces import FIRST, SECOND, Plan, pieces, plan_of
from fedtab_tables import name_hardware
from sklearn.metrics import adjusted_rand_score

from fedwca.results.tables import Table

RESULT = Path(__file__).resolve().parent / "results" / "fedtab_gate.json"
NOTHING = "Not measured yet: `python benchmarks/fedtab_gate.py`."
NAMES = {
    "digits": "Digit-Five",
    "embedded": "digits-mini",
    "pacs": "PACS",
    "skewed": "Digit-Five, classes by Dirichlet(0.3)",
}
MEASURES = {"trust": "I", "pooled": "I, pooled over clusters", "confidence": "confidence"}
LEAST = FIRST.gate.strong
"""From where a client is trusted, by each measure."""

Found = Mapping[str, Any]


def measured(plan: Plan = FIRST) -> list[Found]:
    """Pieces of a test that are done."""
    every = list(json.loads(RESULT.read_text())["pieces"].values()) if RESULT.exists() else []
    return [piece for piece in every if plan_of(piece["kind"]) is plan]


@dataclass(frozen=True)
class Decision:
    """What the gate decides of a pair of source and target domain in a seed, or of one client."""

    trusted: bool
    stopped: bool
    right: bool
    """Whether most labels are."""

    @property
    def wrong(self) -> bool:
        """Whether labels that are mostly wrong are trusted, or training towards mostly right ones is stopped."""
        return self.stopped if self.right else self.trusted


def decisions(found: Sequence[Found], measure: str, plan: Plan = FIRST) -> list[Decision]:
    """For each pair of source and target domain and seed, by what most of its clients are."""
    made = []
    for piece in found:
        levels = plan.gate.levels(piece[measure])
        trusted = mean_by_domain(piece["domains"], [level == 1 for level in levels])
        stopped = mean_by_domain(piece["domains"], [level == 0 for level in levels])
        right = mean_by_domain(piece["domains"], piece["right"])
        made += [Decision(trusted[domain] >= 0.5, stopped[domain] > 0.5, right[domain] >= 50) for domain in right]
    return made


def client_errors(found: Sequence[Found], measure: str, plan: Plan = FIRST) -> tuple[int, int]:
    """Clients that the gate decides wrong by their own labels, and all."""
    made = [
        Decision(level == 1, level == 0, right >= 50).wrong
        for piece in found
        for level, right in zip(plan.gate.levels(piece[measure]), piece["right"], strict=True)
    ]
    return sum(made), len(made)


def gate(plan: Plan = FIRST) -> str:
    """A row a data set and measure, and what the rule says of I."""
    every = measured(plan)
    if not every:
        return NOTHING
    lines = []
    for kind, name in NAMES.items():
        found = [piece for piece in every if piece["kind"] == plan.prefix + kind]
        for measure, label in MEASURES.items() if found else ():
            made = decisions(found, measure, plan)
            stops = sum(own.wrong and own.stopped for own in made)
            lets = sum(own.wrong and own.trusted for own in made)
            wrong, clients = client_errors(found, measure, plan)
            cells = [len(made), sum(own.trusted for own in made), stops, lets, f"{wrong} of {clients}"]
            lines.append([name, label, *map(str, cells)])
    heads = (
        "data set",
        "trusts by",
        "pairs",
        "trusted",
        "stopped, mostly right",
        "trusted, mostly wrong",
        "clients wrong",
    )
    table = Table("", heads, lines, [name_hardware(every)])
    return "\n\n".join([table.markdown(), *sentences(every, plan), claims(every, plan)])


def claims(every: Sequence[Found], plan: Plan) -> str:
    """A row a data set: what the method was designed on besides, in the same pieces."""
    lines = []
    for kind, name in NAMES.items():
        found = [piece for piece in every if piece["kind"] == plan.prefix + kind]
        if not found:
            continue
        fits = [float(adjusted_rand_score(piece["domains"], piece["clusters"])) for piece in found]
        gains = prototype_gains(found, plan)
        worse, level = [gain < 0 for gain in gains[False]], [gain >= 0 for gain in gains[True]]
        counts = [f"{sum(some)} of {len(some)}" for some in (worse, level)]
        lines.append([name, f"{fmean(fits):.2f} ({min(fits):.2f})", *counts])
    heads = (
        "data set",
        "ARI of clusters by moments: mean (least)",
        "not trusted, prototypes worse than the predicted class",
        "trusted, prototypes at least as good",
    )
    return Table("", heads, lines, [name_hardware(every)]).markdown()


def prototype_gains(found: Sequence[Found], plan: Plan = FIRST) -> dict[bool, list[float]]:
    """Right labels by prototypes minus those by the predicted class, by whether a pair of domains is trusted."""
    gains: dict[bool, list[float]] = {True: [], False: []}
    for piece in found:
        right, predicted = (mean_by_domain(piece["domains"], piece[what]) for what in ("right", "predicted"))
        for domain, own in zip(right, decisions([piece], "trust", plan), strict=True):
            gains[own.trusted].append(right[domain] - predicted[domain])
    return gains


def sentences(every: Sequence[Found], plan: Plan = FIRST) -> list[str]:
    """What the rules say; skewed clients have one of their own."""
    found = [piece for piece in every if piece["kind"] != "skewed"]
    if not found:
        return []
    made = decisions(found, "trust", plan)
    wrong = sum(own.wrong for own in made)
    said = [
        f"By I the gate is wrong in {wrong} of {len(made)} pairs of domains, {100 * wrong / len(made):.0f} %; "
        "more than 10 % would refute it."
    ]
    if plan.gate.plain < plan.gate.strong:
        between = [own for own in made if not own.trusted and not own.stopped]
        lost = sum(not own.right for own in between)
        before = sum(own.wrong for own in decisions(found, "trust", FIRST))
        count, with_these = len(made), wrong + lost
        said.append(
            f"{len(between)} pairs are neither trusted nor stopped: clients there train on plain images, which this "
            f"rule never calls wrong. In {lost} of them labels are mostly wrong; with these it is {with_these} of "
            f"{count}, {100 * with_these / count:.0f} %. The first test's gate is wrong in {before} of these {count} "
            f"pairs, {100 * before / count:.0f} %."
        )
    own = [piece for piece in pieces() if piece.plan is plan and not piece.kind.endswith("skewed")]
    planned = {(piece.kind, piece.source, piece.seed) for piece in own}
    if left := len(planned) - len(found):
        said.append(f"{left} of {len(planned)} source models are not measured yet.")
    if resnet := decisions([piece for piece in found if piece["kind"].endswith("pacs")], "trust", plan):
        said.append(f"On PACS with ResNet-18 it stops {sum(own.stopped for own in resnet)} of {len(resnet)} pairs.")
    return said


BLOCKS = {"fedtab-gate": gate, "fedtab-second-gate": lambda: gate(SECOND)}
