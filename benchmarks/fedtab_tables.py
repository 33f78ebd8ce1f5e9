"""The results of `benchmarks/fedtab.py` for docs/fedtab-*-test.md, by rules fixed before it was run; no script."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from fedtab_numbers import (
    EQUAL_COMPUTE,
    HARM,
    OWN,
    PARTS,
    PLAIN,
    RIVALS,
    THRESHOLDS,
    UNSEEN,
    Found,
    base_of,
    by_seed,
    difference,
    finished,
    harmed,
    has_all_seeds,
    is_above,
    is_above_both,
    is_digits,
    lost_seeds,
    measured,
    moved,
    own_by_seed,
    planned_seeds,
    whole_seeds,
    worst,
)
from fedtab_pieces import FIRST, SECOND, Plan, pieces, plan_of
from readings import name_machine, name_machines

from fedwca.core.count_of import count_of
from fedwca.results.tables import Table, difference_cell

NOTHING = "Nothing is measured yet: `python benchmarks/fedtab.py --all`."


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
    notes = [*divergence_notes(records), *foreign_notes(seeds), name_hardware(records)]
    return Table("", heads, lines, notes).markdown()


def divergence_notes(records: Sequence[Found]) -> list[str]:
    """A note on methods that have no row because they diverged in some pieces."""
    counts = Counter(method for piece in records for method in piece.get("diverged", ()))
    lost = [f"{method} in {count} of {len(records)} pieces" for method, count in counts.items()]
    return [f"No row, since diverged: {', '.join(lost)}."] if lost else []


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


def verdict(kind: str, seeds: Mapping[int, Sequence[Found]]) -> str:
    """A sentence on the primary comparison for digits, and on the same comparison for other kinds."""
    complete = has_all_seeds(seeds)
    above_both = complete and is_above_both(seeds)
    outcome = "above FedWCA and FedSCAl, both intervals exclude 0" if above_both else "not shown to be above both"
    name = "Primary comparison" if is_digits(kind) else "The same comparison, which is not the primary one"
    return f"{name}: {outcome}{'' if complete else ' (seeds are missing)'}."


def sentences(kind: str, seeds: Mapping[int, Sequence[Found]]) -> list[str]:
    """What the rules say of these results; rows that some piece lacks are only listed."""
    every_piece = [piece for seed_pieces in seeds.values() for piece in seed_pieces]
    rows = measured(every_piece)
    missing = "" if has_all_seeds(seeds) else " Seeds are missing."
    result = [verdict(kind, seeds)]
    if plan_of(kind) is SECOND:
        highs = {rival: difference(seeds, rival).high for rival in RIVALS if rival in rows}
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
    holds = all(map(is_above_both, rates))
    refuted = any(lost_seeds(seeds) > 1 for seeds in tables.values())
    caveat = " Another rule refutes the method: domains that train and lose by it, below." if refuted else ""
    return f"**The claim**, the primary comparison at both learning rates: {'shown' if holds else 'not shown'}.{caveat}"


DATA = {"digits": "Digit-Five", "embedded": "digits-mini", "pacs": "PACS", "skewed": "Digit-Five with skewed classes"}
"""Names of the kinds of pieces in headings."""


def name_data(kind: str, plan: Plan) -> str:
    """A kind of pieces with its learning rate, by the name of its data set.

    >>> name_data("second-embedded, learning rate 0.003", SECOND)
    'digits-mini, learning rate 0.003'
    """
    data, comma, rate = kind.removeprefix(plan.prefix).partition(",")
    return DATA[data] + comma + rate


def results(plan: Plan = FIRST) -> str:
    """All tables and sentences of a test; a group appears as soon as one seed has every source."""
    tables = {kind: seeds for kind, records in finished(plan).items() if (seeds := whole_seeds(records))}
    if not tables:
        return NOTHING
    parts = [both_rates(tables)]
    if plan is SECOND:
        parts.append('In these tables FedTAB is the revised method, and "first FedTAB" that of the first test.')
    for kind, seeds in tables.items():
        heading = f"**{name_data(kind, plan)}**, n = {len(seeds)} of {len(planned_seeds(seeds))} seeds"
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
