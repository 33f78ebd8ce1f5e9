"""The results of `benchmarks/fedtab.py` for docs/fedtab-*-test.md, by rules fixed before it was run; no script."""

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

from fedwca.core.count_of import count_of
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
"""What a row tests; it is shown to be needed if FedTAB is above the row with an interval that excludes 0."""
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
    """Records of all pieces that are done, in whole or in part."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def finished(plan: Plan) -> dict[str, list[Found]]:
    """Records of one test whose run ``main`` is done, by kind and learning rate; each group is one table."""
    groups = defaultdict(list)
    for piece in every_piece():
        if "main" not in piece["runs"] or plan_of(piece["kind"]) is not plan:
            continue  # only ablations, without the methods that they are compared with
        groups[f"{piece['kind']}, learning rate {piece['lr']:g}"].append(piece)
    return dict(groups)


def whole_seeds(records: Sequence[Found]) -> dict[int, list[Found]]:
    """Records by seed, for seeds that have every source."""
    all_sources = {piece.source for piece in pieces() if piece.kind == records[0]["kind"]}
    seeds: dict[int, list[Found]] = defaultdict(list)
    for piece in records:
        seeds[piece["seed"]].append(piece)
    return {
        seed: seed_pieces
        for seed, seed_pieces in sorted(seeds.items())
        if {piece["source"] for piece in seed_pieces} == all_sources
    }


def measured(records: Sequence[Found]) -> list[str]:
    """Methods that every piece has; some pieces may lack ablations, which run after ``main``."""
    return [name for name in records[0]["methods"] if all(name in piece["methods"] for piece in records)]


def mean_of(piece: Found, method: str) -> float:
    """Mean accuracy of a method in a piece over clients with test images."""
    return mean_of_known(piece["methods"][method]["accuracy"])


def base_of(piece: Found, method: str) -> Found:
    """Results of FedTAB and Source + AdaBN from the same source model as a method in this piece."""
    source = source_of(piece["methods"][method])
    base: Found = piece if source in (None, source_of(piece)) else piece["beside"][source]
    return base


def source_of(entry: Mapping[str, Any]) -> str | None:
    """Checksum of the source model's weights; earlier results have a hash of its recipe, the first ones None."""
    return entry.get("source_weights") or entry.get("source_digest")


def by_seed(seeds: Mapping[int, Sequence[Found]], method: str) -> dict[int, float]:
    """Mean accuracy of a method over sources by seed, which is what comparisons use."""
    return {
        seed: statistics.fmean(mean_of(piece, method) for piece in seed_pieces) for seed, seed_pieces in seeds.items()
    }


def own_by_seed(seeds: Mapping[int, Sequence[Found]], method: str) -> dict[int, float]:
    """FedTAB's mean accuracy by seed, from the same source models as a method."""
    return by_seed(
        {seed: [base_of(piece, method) for piece in seed_pieces] for seed, seed_pieces in seeds.items()}, OWN
    )


def difference(seeds: Mapping[int, Sequence[Found]], method: str) -> Difference:
    """FedTAB minus a method, from the same source models and paired by seed."""
    result = paired_difference(own_by_seed(seeds, method), by_seed(seeds, method))
    assert result is not None
    return result


def harmed(seeds: Mapping[int, Sequence[Found]], method: str) -> float:
    """Share of (seed, source, domain) in which a method ends below Source + AdaBN."""
    below = []
    for piece in (piece for seed_pieces in seeds.values() for piece in seed_pieces):
        accuracy, base_accuracy = (
            mean_by_domain(piece["domains"], record["methods"][name]["accuracy"])
            for record, name in ((piece, method), (base_of(piece, method), HARM))
        )
        below += [accuracy[domain] < base_accuracy[domain] for domain in accuracy]
    return statistics.fmean(below)


def worst(seeds: Mapping[int, Sequence[Found]], method: str) -> float:
    """Mean over pieces of the lowest mean accuracy of a domain."""
    records = (piece for seed_pieces in seeds.values() for piece in seed_pieces)
    return statistics.fmean(
        min(mean_by_domain(piece["domains"], piece["methods"][method]["accuracy"]).values()) for piece in records
    )


def table(seeds: Mapping[int, Sequence[Found]]) -> str:
    """Table with a row per method."""
    lines = []
    records = [piece for seed_pieces in seeds.values() for piece in seed_pieces]
    for method in measured(records):
        cost = [statistics.fmean(piece["methods"][method][key] for piece in records) for key in ("bytes", "seconds")]
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
    return Table("", heads, lines, [*foreign_notes(seeds), name_hardware(records)]).markdown()


def name_hardware(records: Sequence[Found]) -> str:
    """A sentence on the hardware that pieces ran on; source models and seconds depend on it."""
    machines = Counter(name_machine(piece["environment"]) for piece in records)
    counts = [f"{machine} ({count_of(count, 'piece')})" for machine, count in machines.items()]
    return f"Hardware: {'; '.join(counts)}."


def foreign_notes(seeds: Mapping[int, Sequence[Found]]) -> list[str]:
    """Notes on rows that ran on other hardware than FedTAB's: FedTAB's accuracy from their source models."""
    records = [piece for seed_pieces in seeds.values() for piece in seed_pieces]
    notes: dict[str, list[str]] = {}
    for method in measured(records):
        if bases := [base for piece in records if (base := base_of(piece, method)) is not piece]:
            mean = statistics.fmean(own_by_seed(seeds, method).values())
            machines = name_machines(base["environment"] for base in bases)
            scope = "" if len(bases) == len(records) else f"{len(bases)} of {len(records)} pieces "
            note = f"{scope}on {machines}, from other source models; FedTAB from those has {mean:.1f}."
            notes.setdefault(note, []).append(method)
    return [f"{', '.join(methods)}: {note}" for note, methods in notes.items()]


def lost_seeds(seeds: Mapping[int, Sequence[Found]]) -> int:
    """Number of seeds in which FedTAB ends over 2 points below Source + AdaBN in a domain with a client that trains.

    In the first test only trusted clients train.
    """
    lost = 0
    for seed_pieces in seeds.values():
        gaps = []
        for piece in seed_pieces:
            accuracy, base_accuracy = (
                mean_by_domain(piece["domains"], piece["methods"][name]["accuracy"]) for name in (OWN, HARM)
            )
            levels = plan_of(piece["kind"]).gate.levels(piece["trust"])
            trains = mean_by_domain(piece["domains"], levels)
            gaps += [base_accuracy[domain] - accuracy[domain] for domain in accuracy if trains[domain] > 0]
        lost += max(gaps, default=0.0) > 2
    return lost


def moved(seeds: Mapping[int, Sequence[Found]], method: str, sources: Sequence[str]) -> float:
    """Mean over the pieces of some sources of a method's accuracy minus FedTAB's."""
    records = [piece for seed_pieces in seeds.values() for piece in seed_pieces if piece["source"] in sources]
    return statistics.fmean(mean_of(piece, method) - mean_of(base_of(piece, method), OWN) for piece in records)


def is_above(seeds: Mapping[int, Sequence[Found]], method: str) -> bool:
    """Whether FedTAB is above a method with an interval that excludes 0."""
    return excludes_zero(difference(seeds, method))


def excludes_zero(gap: Difference) -> bool:
    """Whether the whole interval of a difference is above 0."""
    return gap.low is not None and gap.low > 0


def verdict(kind: str, seeds: Mapping[int, Sequence[Found]]) -> str:
    """A sentence on the primary comparison for digits, and on the same comparison for other kinds."""
    complete = has_all_seeds(seeds)
    above_both = complete and all(is_above(seeds, rival) for rival in RIVALS)
    outcome = "above FedWCA and FedSCAl, both intervals exclude 0" if above_both else "not shown to be above both"
    name = "Primary comparison" if is_digits(kind) else "The same comparison, which is not the primary one"
    return f"{name}: {outcome}{'' if complete else ' (seeds are missing)'}."


def is_digits(kind: str) -> bool:
    """Whether a kind of pieces is digits, which the claim is about."""
    return kind.partition(",")[0].endswith("digits")


def has_all_seeds(seeds: Mapping[int, Sequence[Found]]) -> bool:
    """Whether every seed of the test has every source."""
    return set(seeds) == planned_seeds(seeds)


def planned_seeds(seeds: Mapping[int, Sequence[Found]]) -> set[int]:
    """Seeds that the test has of this kind of pieces."""
    (kind,) = {piece["kind"] for seed_pieces in seeds.values() for piece in seed_pieces}
    return {piece.seed for piece in pieces() if piece.kind == kind}


def sentences(kind: str, seeds: Mapping[int, Sequence[Found]]) -> list[str]:
    """What the rules say of these results; rows that some piece lacks are only listed."""
    every_piece = [piece for seed_pieces in seeds.values() for piece in seed_pieces]
    rows = measured(every_piece)
    missing = "" if has_all_seeds(seeds) else " Seeds are missing."
    result = [verdict(kind, seeds)]
    if plan_of(kind) is SECOND:
        highs = {rival: difference(seeds, rival).high for rival in RIVALS}
        ahead = [rival for rival, high in highs.items() if high is not None and high < 0]
        text = "not known, one seed has no interval" if None in highs.values() else ", ".join(ahead) or "none"
        result.append(f"Ahead of it with an interval that excludes 0: {text}.")
    lost = lost_seeds(seeds)
    result.append(
        f"A domain that trains ends over 2 points below {HARM} in {lost} of {len(seeds)} seeds"
        f"{'; more than one refutes' if lost > 1 else ''}."
    )
    if set(EQUAL_COMPUTE) <= set(rows):
        near = [name for name in EQUAL_COMPUTE if difference(seeds, name).mean < 1]
        result.append(f"At twice the epochs within a point or above: {', '.join(near) or 'none'}.{missing}")
    else:
        ended = sum(set(EQUAL_COMPUTE) <= piece["methods"].keys() for piece in every_piece)
        state = f"run in {ended} of {len(every_piece)} pieces alone, so not shown here" if ended else "not run yet"
        result.append(f"Twice the epochs: {state}.")
    plan = plan_of(kind)
    sources = UNSEEN[kind.partition(",")[0].removeprefix(plan.prefix)]
    unseen_rows = measured(
        [piece for seed_pieces in seeds.values() for piece in seed_pieces if piece["source"] in sources]
    )
    moves = {name: moved(seeds, name, sources) for name in THRESHOLDS if name in unseen_rows}
    if moves:
        exceeds = any(abs(value) > 2 for value in moves.values())
        text = ", ".join(f"{THRESHOLDS[name]} by {value:+.1f}" for name, value in moves.items())
        result.append(
            f"Threshold {text} points on sources that the first design has not seen ({', '.join(sources)}): "
            f"{'over' if exceeds else 'within'} 2.{missing}"
        )
    for name, part in PARTS.items():
        if name in rows:
            text = "needed" if is_above(seeds, name) else "not shown to be needed"
            result.append(f"FedTAB minus {name}: {difference_cell(difference(seeds, name))}: {part} {text}.{missing}")
    if PLAIN in rows:
        loss = difference(seeds, PLAIN)
        better = loss.high is not None and loss.high < 0
        text = f"FedTAB minus untrusted clients on plain images: {difference_cell(loss)}"
        result.append(f"{text}: these are {'' if better else 'not '}shown to be better.{missing}")
    rows_of_runs = [name for name in plan.runs if name not in ("main", "twice")]
    counts = {name: sum(name in piece["methods"] for piece in every_piece) for name in rows_of_runs}
    if partial := [
        f"{name} in {count} of {len(every_piece)}" for name, count in counts.items() if 0 < count < len(every_piece)
    ]:
        result.append(f"Run in some pieces alone, so not shown here: {', '.join(partial)}.")
    if not_run := [name for name, count in counts.items() if not count]:
        result.append(f"Not run yet: {', '.join(not_run)}.")
    return result


def both_rates(tables: Mapping[str, Mapping[int, Sequence[Found]]]) -> str:
    """A sentence on the claim, which must hold at both learning rates."""
    rates = [seeds for kind, seeds in tables.items() if is_digits(kind)]
    rate_count = len({piece.settings["lr"] for piece in pieces() if piece.kind == "digits"})
    if len(rates) < rate_count or not all(has_all_seeds(seeds) for seeds in rates):
        return "**The claim** needs the primary comparison at both learning rates: not decided yet."
    holds = all(is_above(seeds, rival) for seeds in rates for rival in RIVALS)
    refuted = any(lost_seeds(seeds) > 1 for seeds in tables.values())
    caveat = " Another rule refutes the method: domains that train and lose by it, below." if refuted else ""
    return f"**The claim**, the primary comparison at both learning rates: {'shown' if holds else 'not shown'}.{caveat}"


def results(plan: Plan = FIRST) -> str:
    """All tables and sentences of a test; a group appears as soon as one seed has every source."""
    tables = {kind: seeds for kind, records in finished(plan).items() if (seeds := whole_seeds(records))}
    if not tables:
        return NOTHING
    parts = [both_rates(tables)]
    for kind, seeds in tables.items():
        name = kind.removeprefix(plan.prefix).capitalize()
        heading = f"**{name}**, n = {len(seeds)} of {len(planned_seeds(seeds))} seeds"
        parts.append("\n\n".join([heading, table(seeds), *sentences(kind, seeds)]))
    planned = Counter(piece.kind for piece in pieces() if piece.plan is plan)
    begun_kinds = {records[0]["kind"] for records in finished(plan).values()}
    not_begun = {kind.removeprefix(plan.prefix): count for kind, count in planned.items() if kind not in begun_kinds}
    if not_begun:
        parts.append(
            f"No piece is run yet of: {', '.join(f'{kind} ({count} pieces)' for kind, count in not_begun.items())}."
        )
    return "\n\n".join(parts)


BLOCKS = {"fedtab": results, "fedtab-second": lambda: results(SECOND)}
