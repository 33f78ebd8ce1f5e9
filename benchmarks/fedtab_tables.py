"""The results of `benchmarks/fedtab.py` in docs/fedtab.md, by rules fixed before it was run; no script."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domain_means import mean_by_domain, mean_of_known
from fedtab_pieces import EMBEDDED_SOURCES, FIRST, PACS_SOURCES, SECOND, Plan, pieces, plan_of
from readings import name_machine, name_machines

from fedwca.results.describe_run import count_of
from fedwca.results.statistics import Difference, paired_difference
from fedwca.results.tables import Table, difference_cell

RESULTS = Path(__file__).resolve().parent / "results" / "fedtab"
NOTHING = "Nothing is measured yet: `python benchmarks/fedtab.py --all`."
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
"""What is not needed if a row is level with FedTAB: if its interval does not exclude 0 from above."""
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
    """Pieces that are done, in whole or in part."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def finished(plan: Plan) -> dict[str, list[Found]]:
    """The same of one test by what is one table: the kind, and of digits the learning rate."""
    groups = defaultdict(list)
    for piece in every_piece():
        if "main" not in piece["runs"] or plan_of(piece["kind"]) is not plan:
            continue  # ablations without what they are compared with
        groups[f"{piece['kind']}, learning rate {piece['lr']:g}"].append(piece)
    return dict(groups)


def whole_seeds(found: Sequence[Found]) -> dict[int, list[Found]]:
    """Pieces by seed, of seeds that have every source."""
    wanted = {piece.source for piece in pieces() if piece.kind == found[0]["kind"]}
    seeds: dict[int, list[Found]] = defaultdict(list)
    for piece in found:
        seeds[piece["seed"]].append(piece)
    return {seed: some for seed, some in sorted(seeds.items()) if {piece["source"] for piece in some} == wanted}


def measured(found: Sequence[Found]) -> list[str]:
    """Methods that every piece has; ablations may come after what is claimed."""
    return [name for name in found[0]["methods"] if all(name in piece["methods"] for piece in found)]


def mean_of(piece: Found, method: str) -> float:
    """Mean over clients with test images."""
    return mean_of_known(piece["methods"][method]["accuracy"])


def base_of(piece: Found, method: str) -> Found:
    """FedTAB and the source model with re-estimated statistics, from the source model that a method has."""
    source = source_of(piece["methods"][method])
    found: Found = piece if source in (None, source_of(piece)) else piece["beside"][source]
    return found


def source_of(entry: Mapping[str, Any]) -> str | None:
    """What tells one source model from another; earlier results have a hash of its recipe, the first ones nothing."""
    return entry.get("source_weights") or entry.get("source_digest")


def by_seed(seeds: Mapping[int, Sequence[Found]], method: str) -> dict[int, float]:
    """Mean over sources of each seed: what is compared."""
    return {seed: statistics.fmean(mean_of(piece, method) for piece in some) for seed, some in seeds.items()}


def own_by_seed(seeds: Mapping[int, Sequence[Found]], method: str) -> dict[int, float]:
    """FedTAB's means from the source models that a method has."""
    return by_seed({seed: [base_of(piece, method) for piece in some] for seed, some in seeds.items()}, OWN)


def difference(seeds: Mapping[int, Sequence[Found]], method: str) -> Difference:
    """FedTAB minus a method from the same source models, paired by seed."""
    found = paired_difference(own_by_seed(seeds, method), by_seed(seeds, method))
    assert found is not None
    return found


def harmed(seeds: Mapping[int, Sequence[Found]], method: str) -> float:
    """Share of (seed, source, domain) that end below the source model with re-estimated statistics."""
    below = []
    for piece in (piece for some in seeds.values() for piece in some):
        own, base = (
            mean_by_domain(piece["domains"], found["methods"][name]["accuracy"])
            for found, name in ((piece, method), (base_of(piece, method), HARM))
        )
        below += [own[domain] < base[domain] for domain in own]
    return statistics.fmean(below)


def worst(seeds: Mapping[int, Sequence[Found]], method: str) -> float:
    """Mean over pieces of the least accurate domain's mean."""
    every = (piece for some in seeds.values() for piece in some)
    return statistics.fmean(min(mean_by_domain(p["domains"], p["methods"][method]["accuracy"]).values()) for p in every)


def table(seeds: Mapping[int, Sequence[Found]]) -> str:
    """A row for each method."""
    lines = []
    every = [piece for some in seeds.values() for piece in some]
    for method in measured(every):
        cost = [statistics.fmean(piece["methods"][method][what] for piece in every) for what in ("bytes", "seconds")]
        lines.append(
            [
                method,
                f"{statistics.fmean(by_seed(seeds, method).values()):.1f}",
                "" if method == OWN else difference_cell(difference(seeds, method)),
                f"{worst(seeds, method):.1f}",
                f"{100 * harmed(seeds, method):.0f}",
                f"{cost[0] / 1e6:.0f}",
                f"{cost[1]:.0f}",
            ]
        )
    heads = ("method", "mean (%)", "FedTAB minus it", "worst domain (%)", "harmed (%)", "MB", "seconds")
    return Table("", heads, lines, [*foreign_notes(seeds), name_hardware(every)]).markdown()


def name_hardware(found: Sequence[Found]) -> str:
    """On what pieces were run, whose source models and seconds are its own."""
    machines = Counter(name_machine(piece["environment"]) for piece in found)
    counts = [f"{machine} ({count_of(count, 'piece')})" for machine, count in machines.items()]
    return f"Hardware: {'; '.join(counts)}."


def foreign_notes(seeds: Mapping[int, Sequence[Found]]) -> list[str]:
    """What FedTAB has from the source models of rows that were run on other hardware than its own row."""
    every = [piece for some in seeds.values() for piece in some]
    notes: dict[str, list[str]] = {}
    for method in measured(every):
        if others := [base for piece in every if (base := base_of(piece, method)) is not piece]:
            mean = statistics.fmean(own_by_seed(seeds, method).values())
            where = name_machines(base["environment"] for base in others)
            which = "" if len(others) == len(every) else f"{len(others)} of {len(every)} pieces "
            said = f"{which}on {where}, from other source models; FedTAB from those has {mean:.1f}."
            notes.setdefault(said, []).append(method)
    return [f"{', '.join(methods)}: {said}" for said, methods in notes.items()]


def lost_seeds(seeds: Mapping[int, Sequence[Found]]) -> int:
    """Seeds in which some domain that has a client that trains, in the first test a trusted one, ends over 2 points
    below the source model with re-estimated statistics.
    """
    lost = 0
    for some in seeds.values():
        gaps = []
        for piece in some:
            own, base = (mean_by_domain(piece["domains"], piece["methods"][name]["accuracy"]) for name in (OWN, HARM))
            levels = plan_of(piece["kind"]).gate.levels(piece["trust"])
            trains = mean_by_domain(piece["domains"], levels)
            gaps += [base[domain] - own[domain] for domain in own if trains[domain] > 0]
        lost += max(gaps, default=0.0) > 2
    return lost


def moved(seeds: Mapping[int, Sequence[Found]], method: str, sources: Sequence[str]) -> float:
    """Mean over pieces of some sources of a method minus FedTAB."""
    every = [piece for some in seeds.values() for piece in some if piece["source"] in sources]
    return statistics.fmean(mean_of(piece, method) - mean_of(base_of(piece, method), OWN) for piece in every)


def is_above(seeds: Mapping[int, Sequence[Found]], method: str) -> bool:
    """Whether FedTAB is above a method with an interval that excludes 0."""
    return excludes_zero(difference(seeds, method))


def excludes_zero(found: Difference) -> bool:
    """Whether an interval is above 0."""
    return found.low is not None and found.low > 0


def verdict(kind: str, seeds: Mapping[int, Sequence[Found]]) -> str:
    """What is claimed: on digits by the rule, elsewhere the same comparison beside it."""
    whole = has_all_seeds(seeds)
    both = whole and all(is_above(seeds, rival) for rival in RIVALS)
    said = "above FedWCA and FedSCAl, both intervals exclude 0" if both else "not shown to be above both"
    name = "Primary comparison" if is_digits(kind) else "The same comparison, which is not the primary one"
    return f"{name}: {said}{'' if whole else ' (seeds are missing)'}."


def is_digits(kind: str) -> bool:
    """Whether the claim is about it."""
    return kind.partition(",")[0].endswith("digits")


def has_all_seeds(seeds: Mapping[int, Sequence[Found]]) -> bool:
    """Whether every seed of the test has every source."""
    return set(seeds) == planned_seeds(seeds)


def planned_seeds(seeds: Mapping[int, Sequence[Found]]) -> set[int]:
    """Seeds that the test has of this kind of pieces."""
    (kind,) = {piece["kind"] for some in seeds.values() for piece in some}
    return {piece.seed for piece in pieces() if piece.kind == kind}


def sentences(kind: str, seeds: Mapping[int, Sequence[Found]]) -> list[str]:
    """What the rules say of these numbers; nothing of rows that some piece lacks."""
    rows = measured([piece for some in seeds.values() for piece in some])
    missing = "" if has_all_seeds(seeds) else " Seeds are missing."
    said = [verdict(kind, seeds)]
    if plan_of(kind) is SECOND:
        highs = {rival: difference(seeds, rival).high for rival in RIVALS}
        ahead = [rival for rival, high in highs.items() if high is not None and high < 0]
        told = "not known, one seed has no interval" if None in highs.values() else ", ".join(ahead) or "none"
        said.append(f"Ahead of it with an interval that excludes 0: {told}.")
    lost = lost_seeds(seeds)
    said.append(
        f"A domain that trains ends over 2 points below {HARM} in {lost} of {len(seeds)} seeds"
        f"{'; more than one refutes' if lost > 1 else ''}."
    )
    if set(EQUAL_COMPUTE) <= set(rows):
        near = [name for name in EQUAL_COMPUTE if difference(seeds, name).mean < 1]
        said.append(f"At twice the epochs within a point or above: {', '.join(near) or 'none'}.{missing}")
    else:
        said.append("Twice the epochs: not run yet.")
    plan = plan_of(kind)
    sources = UNSEEN[kind.partition(",")[0].removeprefix(plan.prefix)]
    there = measured([piece for some in seeds.values() for piece in some if piece["source"] in sources])
    moves = {name: moved(seeds, name, sources) for name in THRESHOLDS if name in there}
    if moves:
        over = any(abs(value) > 2 for value in moves.values())
        told = ", ".join(f"{THRESHOLDS[name]} by {value:+.1f}" for name, value in moves.items())
        said.append(
            f"Threshold {told} points on sources that the first design has not seen ({', '.join(sources)}): "
            f"{'over' if over else 'within'} 2.{missing}"
        )
    for name, part in PARTS.items():
        if name in rows:
            told = "needed" if is_above(seeds, name) else "not shown to be needed"
            said.append(f"FedTAB minus {name}: {difference_cell(difference(seeds, name))}: {part} {told}.{missing}")
    if PLAIN in rows:
        loss = difference(seeds, PLAIN)
        better = loss.high is not None and loss.high < 0
        told = f"FedTAB minus untrusted clients on plain images: {difference_cell(loss)}"
        said.append(f"{told}: these are {'' if better else 'not '}shown to be better.{missing}")
    every = [piece for some in seeds.values() for piece in some]
    rows_of_runs = [name for name in plan.runs if name not in ("main", "twice")]
    counts = {name: sum(name in piece["methods"] for piece in every) for name in rows_of_runs}
    if begun := [f"{name} in {some} of {len(every)}" for name, some in counts.items() if 0 < some < len(every)]:
        said.append(f"Run in some pieces alone, so not shown here: {', '.join(begun)}.")
    if left := [name for name, some in counts.items() if not some]:
        said.append(f"Not run yet: {', '.join(left)}.")
    return said


def both_rates(tables: Mapping[str, Mapping[int, Sequence[Found]]]) -> str:
    """The claim, which must hold at both learning rates."""
    rates = [seeds for kind, seeds in tables.items() if is_digits(kind)]
    wanted = len({piece.settings["lr"] for piece in pieces() if piece.kind == "digits"})
    if len(rates) < wanted or not all(has_all_seeds(seeds) for seeds in rates):
        return "**The claim** needs the primary comparison at both learning rates: not decided yet."
    holds = all(is_above(seeds, rival) for seeds in rates for rival in RIVALS)
    refuted = any(lost_seeds(seeds) > 1 for seeds in tables.values())
    but = " Another rule refutes the method: domains that train and lose by it, below." if refuted else ""
    return f"**The claim**, the primary comparison at both learning rates: {'shown' if holds else 'not shown'}.{but}"


def results(plan: Plan = FIRST) -> str:
    """All of a test; a group appears when a seed has every source."""
    tables = {kind: seeds for kind, found in finished(plan).items() if (seeds := whole_seeds(found))}
    if not tables:
        return NOTHING
    parts = [both_rates(tables)]
    for kind, seeds in tables.items():
        name = kind.removeprefix(plan.prefix).capitalize()
        head = f"**{name}**, n = {len(seeds)} of {len(planned_seeds(seeds))} seeds"
        parts.append("\n\n".join([head, table(seeds), *sentences(kind, seeds)]))
    planned = Counter(piece.kind for piece in pieces() if piece.plan is plan)
    begun = {found[0]["kind"] for found in finished(plan).values()}
    left = {kind.removeprefix(plan.prefix): count for kind, count in planned.items() if kind not in begun}
    if left:
        parts.append(
            f"No piece is run yet of: {', '.join(f'{kind} ({count} pieces)' for kind, count in left.items())}."
        )
    return "\n\n".join(parts)


BLOCKS = {"fedtab": results, "fedtab-second": lambda: results(SECOND)}
