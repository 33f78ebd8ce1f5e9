"""Whether the gate of FedTAB is right, from `fedtab_gate.py`: a table of docs/fedtab-*-test.md; no script."""

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
"""Threshold from which a client is trusted, for all measures."""

Found = Mapping[str, Any]


def measured(plan: Plan = FIRST) -> list[Found]:
    """Measured pieces of a test."""
    records = list(json.loads(RESULT.read_text())["pieces"].values()) if RESULT.exists() else []
    return [piece for piece in records if plan_of(piece["kind"]) is plan]


@dataclass(frozen=True)
class Decision:
    """The gate's decision on a pair of source and target domain in a seed, or on one client."""

    trusted: bool
    stopped: bool
    right: bool
    """Whether most labels are right."""

    @property
    def wrong(self) -> bool:
        """Whether labels that are mostly wrong are trusted, or training towards mostly right ones is stopped."""
        return self.stopped if self.right else self.trusted


def decisions(records: Sequence[Found], measure: str, plan: Plan = FIRST) -> list[Decision]:
    """Decisions on each pair of source and target domain and each seed, by majority of the pair's clients."""
    result = []
    for piece in records:
        levels = plan.gate.levels(piece[measure])
        trusted = mean_by_domain(piece["domains"], [level == 1 for level in levels])
        stopped = mean_by_domain(piece["domains"], [level == 0 for level in levels])
        right = mean_by_domain(piece["domains"], piece["right"])
        result += [Decision(trusted[domain] >= 0.5, stopped[domain] > 0.5, right[domain] >= 50) for domain in right]
    return result


def client_errors(records: Sequence[Found], measure: str, plan: Plan = FIRST) -> tuple[int, int]:
    """Number of clients that the gate decides wrongly, judged by their own labels, and number of all clients."""
    errors = [
        Decision(level == 1, level == 0, right >= 50).wrong
        for piece in records
        for level, right in zip(plan.gate.levels(piece[measure]), piece["right"], strict=True)
    ]
    return sum(errors), len(errors)


def gate(plan: Plan = FIRST) -> str:
    """Table of decisions with a row per data set and measure, what the rules say of I, and the table of `claims`."""
    records = measured(plan)
    if not records:
        return NOTHING
    lines = []
    for kind, name in NAMES.items():
        kind_records = [piece for piece in records if piece["kind"] == plan.prefix + kind]
        for measure, label in MEASURES.items() if kind_records else ():
            pairs = decisions(kind_records, measure, plan)
            wrongly_stopped = sum(decision.wrong and decision.stopped for decision in pairs)
            wrongly_trusted = sum(decision.wrong and decision.trusted for decision in pairs)
            wrong, clients = client_errors(kind_records, measure, plan)
            cells = [
                len(pairs),
                sum(decision.trusted for decision in pairs),
                wrongly_stopped,
                wrongly_trusted,
                f"{wrong} of {clients}",
            ]
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
    table = Table("", heads, lines, [name_hardware(records)])
    return "\n\n".join([table.markdown(), *sentences(records, plan), claims(records, plan)])


def claims(records: Sequence[Found], plan: Plan) -> str:
    """Table with a row per data set of the other assumptions in the method's design, in the same pieces."""
    lines = []
    for kind, name in NAMES.items():
        kind_records = [piece for piece in records if piece["kind"] == plan.prefix + kind]
        if not kind_records:
            continue
        scores = [float(adjusted_rand_score(piece["domains"], piece["clusters"])) for piece in kind_records]
        gains = prototype_gains(kind_records, plan)
        is_worse, is_no_worse = [gain < 0 for gain in gains[False]], [gain >= 0 for gain in gains[True]]
        counts = [f"{sum(outcomes)} of {len(outcomes)}" for outcomes in (is_worse, is_no_worse)]
        lines.append([name, f"{fmean(scores):.2f} ({min(scores):.2f})", *counts])
    heads = (
        "data set",
        "ARI of clusters by moments: mean (least)",
        "not trusted, prototypes worse than the predicted class",
        "trusted, prototypes at least as good",
    )
    return Table("", heads, lines, [name_hardware(records)]).markdown()


def prototype_gains(records: Sequence[Found], plan: Plan = FIRST) -> dict[bool, list[float]]:
    """Percent of right labels by prototypes minus that by the predicted class, by whether a pair is trusted."""
    gains: dict[bool, list[float]] = {True: [], False: []}
    for piece in records:
        right, predicted = (mean_by_domain(piece["domains"], piece[key]) for key in ("right", "predicted"))
        for domain, decision in zip(right, decisions([piece], "trust", plan), strict=True):
            gains[decision.trusted].append(right[domain] - predicted[domain])
    return gains


def sentences(records: Sequence[Found], plan: Plan = FIRST) -> list[str]:
    """What the rules say of I, without skewed classes, which have a rule of their own."""
    unskewed = [piece for piece in records if piece["kind"] != "skewed"]
    if not unskewed:
        return []
    pairs = decisions(unskewed, "trust", plan)
    wrong = sum(decision.wrong for decision in pairs)
    result = [
        f"By I the gate is wrong in {wrong} of {len(pairs)} pairs of domains, {100 * wrong / len(pairs):.0f} %; "
        "more than 10 % would refute it."
    ]
    if plan.gate.plain < plan.gate.strong:
        between = [decision for decision in pairs if not decision.trusted and not decision.stopped]
        lost = sum(not decision.right for decision in between)
        first = sum(decision.wrong for decision in decisions(unskewed, "trust", FIRST))
        count, with_these = len(pairs), wrong + lost
        result.append(
            f"{len(between)} pairs are neither trusted nor stopped: clients there train on plain images, which this "
            f"rule never calls wrong. In {lost} of them labels are mostly wrong; with these it is {with_these} of "
            f"{count}, {100 * with_these / count:.0f} %. The first test's gate is wrong in {first} of these {count} "
            f"pairs, {100 * first / count:.0f} %."
        )
    unskewed_pieces = [piece for piece in pieces() if piece.plan is plan and not piece.kind.endswith("skewed")]
    planned = {(piece.kind, piece.source, piece.seed) for piece in unskewed_pieces}
    if missing := len(planned) - len(unskewed):
        result.append(f"{missing} of {len(planned)} source models are not measured yet.")
    if resnet := decisions([piece for piece in unskewed if piece["kind"].endswith("pacs")], "trust", plan):
        result.append(
            f"On PACS with ResNet-18 it stops {sum(decision.stopped for decision in resnet)} of {len(resnet)} pairs."
        )
    return result


BLOCKS = {"fedtab-gate": gate, "fedtab-second-gate": lambda: gate(SECOND)}
