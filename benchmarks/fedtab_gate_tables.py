"""Whether the gate of FedTAB is right, from `fedtab_gate.py`: a table of docs/fedtab.md; no script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain
from fedtab_pieces import pieces

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
LEAST = 0.5
"""From where a client is trusted, by each measure."""

Found = Mapping[str, Any]


def measured() -> list[Found]:
    """Pieces that are done."""
    return list(json.loads(RESULT.read_text())["pieces"].values()) if RESULT.exists() else []


def decisions(found: Sequence[Found], measure: str) -> list[tuple[bool, bool]]:
    """For each pair of source and target domain and seed: whether most clients pass, and most labels are right."""
    made = []
    for piece in found:
        passes = mean_by_domain(piece["domains"], [value >= LEAST for value in piece[measure]])
        right = mean_by_domain(piece["domains"], piece["right"])
        made += [(passes[domain] >= 0.5, right[domain] >= 50) for domain in right]
    return made


def client_errors(found: Sequence[Found], measure: str) -> tuple[int, int]:
    """Clients that the gate decides wrong by their own labels, and all."""
    made = [
        (value >= LEAST) != (right >= 50)
        for piece in found
        for value, right in zip(piece[measure], piece["right"], strict=True)
    ]
    return sum(made), len(made)


def gate() -> str:
    """A row a data set and measure, and what the rule says of I."""
    every = measured()
    if not every:
        return NOTHING
    lines = []
    for kind, name in NAMES.items():
        found = [piece for piece in every if piece["kind"] == kind]
        for measure, label in MEASURES.items() if found else ():
            made = decisions(found, measure)
            stops = sum(right and not passes for passes, right in made)
            lets = sum(passes and not right for passes, right in made)
            wrong, clients = client_errors(found, measure)
            cells = [len(made), sum(passes for passes, _ in made), stops, lets, f"{wrong} of {clients}"]
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
    return "\n\n".join([Table("", heads, lines, []).markdown(), *sentences(every)])


def sentences(every: Sequence[Found]) -> list[str]:
    """What the rules say; skewed clients have one of their own."""
    found = [piece for piece in every if piece["kind"] != "skewed"]
    if not found:
        return []
    made = decisions(found, "trust")
    wrong = sum(passes != right for passes, right in made)
    said = [
        f"By I the gate is wrong in {wrong} of {len(made)} pairs of domains, {100 * wrong / len(made):.0f} %; "
        "more than 10 % would refute it."
    ]
    planned = {(piece.kind, piece.source, piece.seed) for piece in pieces() if piece.kind != "skewed"}
    if left := len(planned) - len(found):
        said.append(f"{left} of {len(planned)} source models are not measured yet.")
    if resnet := decisions([piece for piece in found if piece["kind"] == "pacs"], "trust"):
        said.append(
            f"On PACS with ResNet-18 it stops {sum(not passes for passes, _ in resnet)} of {len(resnet)} pairs."
        )
    return said


BLOCKS = {"fedtab-gate": gate}
