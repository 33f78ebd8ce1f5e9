"""The results of `benchmarks/fedtab.py` in docs/fedtab.md, by rules fixed before it was run; no script."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtab_pieces import pieces

from fedwca.results.statistics import interval
from fedwca.results.tables import Table

RESULTS = Path(__file__).resolve().parent / "results" / "fedtab"
NOTHING = "Nothing is shown yet: `python benchmarks/fedtab.py --all`."
OWN, HARM = "FedTAB", "Source + AdaBN"
RIVALS = ("FedWCA", "FedSCAl")
EQUAL_COMPUTE = ("FedWCA twice the epochs", "One-hot twice the epochs")

Found = Mapping[str, Any]


def every_piece() -> list[Found]:
    """Pieces that are done, in whole or in part."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def finished() -> dict[str, list[Found]]:
    """The same by what is one table: the kind, and of digits the learning rate."""
    groups = defaultdict(list)
    for piece in every_piece():
        groups[f"{piece['kind']}, learning rate {piece['lr']:g}"].append(piece)
    return dict(groups)


def whole_seeds(found: Sequence[Found]) -> dict[int, list[Found]]:
    """Pieces by seed, of seeds that have every source."""
    wanted = {piece.source for piece in pieces() if piece.kind == found[0]["kind"]}
    seeds: dict[int, list[Found]] = defaultdict(list)
    for piece in found:
        seeds[piece["seed"]].append(piece)
    return {seed: some for seed, some in sorted(seeds.items()) if {piece["source"] for piece in some} == wanted}


def by_domain(piece: Found, values: Sequence[float | None]) -> dict[str, float]:
    """Mean over the clients of each domain."""
    own: dict[str, list[float]] = defaultdict(list)
    for domain, value in zip(piece["domains"], values, strict=True):
        if value is not None and value == value:
            own[domain].append(value)
    return {domain: statistics.fmean(some) for domain, some in own.items()}


def measured(found: Sequence[Found]) -> list[str]:
    """Methods that every piece has; ablations may come after what is claimed."""
    return [name for name in found[0]["methods"] if all(name in piece["methods"] for piece in found)]


def mean_of(piece: Found, method: str) -> float:
    """Mean over clients with test images."""
    return statistics.fmean(v for v in piece["methods"][method]["accuracy"] if v is not None)


def by_seed(seeds: Mapping[int, Sequence[Found]], method: str) -> list[float]:
    """Mean over sources of each seed: what is compared."""
    return [statistics.fmean(mean_of(piece, method) for piece in some) for some in seeds.values()]


def differences(seeds: Mapping[int, Sequence[Found]], method: str) -> list[float]:
    """FedTAB minus a method, by seed."""
    return [a - b for a, b in zip(by_seed(seeds, OWN), by_seed(seeds, method), strict=True)]


def harmed(seeds: Mapping[int, Sequence[Found]], method: str) -> float:
    """Share of (seed, source, domain) that end below the source model with re-estimated statistics."""
    below = []
    for piece in (piece for some in seeds.values() for piece in some):
        own, base = (by_domain(piece, piece["methods"][name]["accuracy"]) for name in (method, HARM))
        below += [own[domain] < base[domain] for domain in own]
    return statistics.fmean(below)


def worst(seeds: Mapping[int, Sequence[Found]], method: str) -> float:
    """Mean over pieces of the least accurate domain's mean."""
    every = (piece for some in seeds.values() for piece in some)
    return statistics.fmean(min(by_domain(p, p["methods"][method]["accuracy"]).values()) for p in every)


def table(seeds: Mapping[int, Sequence[Found]]) -> str:
    """A row for each method."""
    lines = []
    every = [piece for some in seeds.values() for piece in some]
    for method in measured(every):
        ends = None if method == OWN else interval(differences(seeds, method))
        apart = "" if method == OWN else f"{statistics.fmean(differences(seeds, method)):+.1f}"
        shown = apart if ends is None else f"{apart} ({ends[0]:+.1f} to {ends[1]:+.1f})"
        cost = [statistics.fmean(piece["methods"][method][what] for piece in every) for what in ("bytes", "seconds")]
        lines.append(
            [
                method,
                f"{statistics.fmean(by_seed(seeds, method)):.1f}",
                shown,
                f"{worst(seeds, method):.1f}",
                f"{100 * harmed(seeds, method):.0f}",
                f"{cost[0] / 1e6:.0f}",
                f"{cost[1]:.0f}",
            ]
        )
    heads = ("method", "mean (%)", "FedTAB minus it", "worst domain (%)", "harmed (%)", "MB", "seconds")
    return Table("", heads, lines, []).markdown()


def gate_errors(found: Sequence[Found]) -> tuple[int, int, int]:
    """Pairs of domains where the gate is wrong, all pairs, and those that it stops, by most of a domain's clients."""
    wrong, pairs, stopped = 0, 0, 0
    for piece in found:
        passes, right = by_domain(piece, piece["trusted"]), by_domain(piece, piece["right"])
        for domain, share in right.items():
            trusted = passes[domain] >= 0.5
            pairs, stopped = pairs + 1, stopped + (not trusted)
            wrong += trusted != (share >= 50)
    return wrong, pairs, stopped


def lost_seeds(seeds: Mapping[int, Sequence[Found]]) -> int:
    """Seeds in which some trusted domain ends over 2 points below the source with re-estimated statistics."""
    lost = 0
    for some in seeds.values():
        gaps = []
        for piece in some:
            own, base = (by_domain(piece, piece["methods"][name]["accuracy"]) for name in (OWN, HARM))
            passes = by_domain(piece, piece["trusted"])
            gaps += [base[domain] - own[domain] for domain in own if passes[domain] >= 0.5]
        lost += max(gaps, default=0.0) > 2
    return lost


def sentences(kind: str, found: Sequence[Found], seeds: Mapping[int, Sequence[Found]]) -> list[str]:
    """What the rules say of these numbers."""
    said = []
    if kind.startswith("digits"):
        ends = [interval(differences(seeds, rival)) for rival in RIVALS]
        whole = len(seeds) == len({piece.seed for piece in pieces() if piece.kind == "digits"})
        above = whole and all(both is not None and both[0] > 0 for both in ends)
        verdict = "above FedWCA and FedSCAl, both intervals exclude 0" if above else "not shown to be above both"
        said.append(f"Primary comparison: {verdict}{'' if whole else ' (seeds are missing)'}.")
        if set(EQUAL_COMPUTE) <= set(measured([piece for some in seeds.values() for piece in some])):
            near = [name for name in EQUAL_COMPUTE if statistics.fmean(differences(seeds, name)) < 1]
            said.append(f"At twice the epochs within a point or above: {', '.join(near) or 'none'}.")
        else:
            said.append("Twice the epochs: not run yet.")
    said.append(f"A trusted domain ends over 2 points below {HARM} in {lost_seeds(seeds)} of {len(seeds)} seeds.")
    wrong, pairs, stopped = gate_errors(found)
    said.append(f"The gate is wrong in {wrong} of {pairs} pairs of domains, and stops {stopped}.")
    return said


def results() -> str:
    """All of it; a group appears when a seed has every source."""
    parts = []
    for kind, found in finished().items():
        if seeds := whole_seeds(found):
            head = f"**{kind[0].upper()}{kind[1:]}**, n = {len(seeds)} seeds"
            parts.append("\n\n".join([head, table(seeds), *sentences(kind, found, seeds)]))
    return "\n\n".join(parts) or NOTHING


BLOCKS = {"fedtab": results}
