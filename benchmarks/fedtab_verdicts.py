"""What each rule says of the two tests of FedTAB, at a glance: the first tables of docs/fedtab.md; no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import fedtab_gate_tables
from fedtab_gate_tables import NAMES
from fedtab_numbers import (
    EQUAL_COMPUTE,
    PARTS,
    RIVALS,
    THRESHOLDS,
    UNSEEN,
    Found,
    difference,
    excludes_zero,
    finished,
    has_all_seeds,
    is_digits,
    lost_seeds,
    measured,
    moved,
    planned_seeds,
    whole_seeds,
)
from fedtab_pieces import FIRST, SECOND, Plan

from fedwca.results.statistics import Difference
from fedwca.results.tables import Table, difference_cell

Seeds = Mapping[int, Sequence[Found]]
Columns = Mapping[str, tuple[str, Seeds]]
"""By name of a data set: kind of its pieces with the learning rate, and results of its whole seeds."""
NOT_RUN = "not run"
REFUTED = "refuted"
OPEN = "not decided"
COLUMNS = 4
"""Data sets of a test without skewed classes, of which Digit-Five counts for each learning rate."""
LARGEST_MOVE = 2.0
"""Points by which a threshold may move the mean."""
LARGEST_ERROR = 0.1
"""Share of pairs of domains in which the gate may be wrong."""


def results_by_column(plan: Plan) -> dict[str, tuple[str, Seeds]]:
    """What is measured of a test; Digit-Five has a column for each learning rate."""
    columns = {}
    for key, records in finished(plan).items():
        kind = records[0]["kind"].removeprefix(plan.prefix)
        name = f"{NAMES[kind]}, rate {records[0]['lr']:g}" if kind == "digits" else NAMES[kind]
        if seeds := whole_seeds(records):
            columns[name] = (key, seeds)
    return columns


def is_complete(columns: Columns) -> bool:
    """Whether all seeds of all data sets are there."""
    return len(columns) >= COLUMNS and all(has_all_seeds(seeds) for _, seeds in columns.values())


def head_of(name: str, seeds: Seeds) -> str:
    """Head of a column, which says if seeds are missing."""
    return name if has_all_seeds(seeds) else f"{name}, {len(seeds)} of {len(planned_seeds(seeds))} seeds"


def records_of(seeds: Seeds) -> list[Found]:
    """All pieces of some seeds."""
    return [piece for seed_pieces in seeds.values() for piece in seed_pieces]


def gap_to(seeds: Seeds, method: str) -> Difference | None:
    """FedTAB minus a method, or None if a piece lacks it."""
    return difference(seeds, method) if method in measured(records_of(seeds)) else None


def write_gap(seeds: Seeds, method: str) -> str:
    """FedTAB minus a method with its interval, or how many pieces have it."""
    if gap := gap_to(seeds, method):
        return difference_cell(gap)
    records = records_of(seeds)
    count = sum(method in piece["methods"] for piece in records)
    return f"{count} of {len(records)} pieces" if count else NOT_RUN


def gap_row(columns: Columns, method: str, verdict: str) -> list[str]:
    """FedTAB minus a method on each data set, and a verdict."""
    return [f"minus {method}", *(write_gap(seeds, method) for _, seeds in columns.values()), verdict]


def judge_rival(columns: Columns, rival: str, plan: Plan) -> str:
    """Whether FedTAB is above a rival on the digits, and where the rival is ahead, which refutes in the second test."""
    gaps = {name: gap_to(seeds, rival) for name, (_, seeds) in columns.items()}
    embedded = gaps.get(NAMES["embedded"])
    behind = embedded is not None and embedded.high is not None and embedded.high < 0
    if behind and plan is SECOND:
        return f"{REFUTED} on digits-mini"
    digits = [(gaps[name], seeds) for name, (key, seeds) in columns.items() if is_digits(key)]
    if any(gap is not None and not excludes_zero(gap) for gap, seeds in digits if has_all_seeds(seeds)):
        return REFUTED
    complete = len(digits) == 2 and all(gap is not None and has_all_seeds(seeds) for gap, seeds in digits)
    return f"ahead on Digit-Five{', behind on digits-mini' * behind}" if complete else OPEN


def judge_equal_compute(columns: Columns, method: str) -> str:
    """Whether a rival at twice the epochs is within a point."""
    gaps = [gap_to(seeds, method) for _, seeds in columns.values()]
    if any(gap is not None and gap.mean < 1 for gap in gaps):
        return REFUTED
    return "not refuted" if None not in gaps and is_complete(columns) else OPEN


def losing_row(columns: Columns) -> list[str]:
    """In how many seeds a domain that trains ends over two points below Source + AdaBN; more than one refutes."""
    lost = [(lost_seeds(seeds), len(seeds)) for _, seeds in columns.values()]
    not_refuted = "not refuted" if is_complete(columns) else OPEN
    verdict = REFUTED if any(count > 1 for count, _ in lost) else not_refuted
    return [*(f"{count} of {seeds}" for count, seeds in lost), verdict]


def threshold_row(columns: Columns, plan: Plan) -> list[str]:
    """The largest move of the mean by another threshold on sources that the first design has not seen."""
    cells, moves, complete = [], [], True
    for key, seeds in columns.values():
        sources = UNSEEN[key.partition(",")[0].removeprefix(plan.prefix)]
        unseen_rows = measured([piece for piece in records_of(seeds) if piece["source"] in sources])
        thresholds = [name for name in THRESHOLDS if name in plan.runs]
        found = [moved(seeds, name, sources) for name in thresholds if name in unseen_rows]
        complete = complete and len(found) == len(thresholds)
        moves += found
        lacking = f" ({len(found)} of {len(thresholds)})" if len(found) < len(thresholds) else ""
        begun = any(name in piece["methods"] for name in thresholds for piece in records_of(seeds))
        cells.append(f"{max(found, key=abs):+.1f}{lacking}" if found else "some pieces" if begun else NOT_RUN)
    if any(abs(move) > LARGEST_MOVE for move in moves):
        return [*cells, REFUTED]
    return [*cells, "not refuted" if complete and is_complete(columns) else OPEN]


def gate_row(columns: Columns, plan: Plan) -> list[str]:
    """In how many pairs of domains the gate is wrong; it is measured once for both learning rates of Digit-Five.

    It refutes, too, if the gate stops no pair on PACS. Pairs under skewed classes are shown, and not counted.
    """
    skewed = NAMES["skewed"]
    kinds = {name: plan.prefix + kind for kind, name in NAMES.items()}
    measured_pieces = fedtab_gate_tables.measured(plan)
    decisions = {
        name: fedtab_gate_tables.decisions([p for p in measured_pieces if p["kind"] == kind], "trust", plan)
        for name, kind in kinds.items()
    }
    wrong = {name: sum(pair.wrong for pair in pairs) for name, pairs in decisions.items()}
    counts = {name: f"{wrong[name]} of {len(pairs)}" for name, pairs in decisions.items() if pairs}
    cells, shown = [], set()
    for column in columns:
        name = skewed if column.startswith(skewed) else column.partition(",")[0]
        cells.append("the same" if name in shown else counts.get(name, NOT_RUN))
        shown.add(name)
    cells = [
        f"{cell}, not counted" if column.startswith(skewed) else cell
        for column, cell in zip(columns, cells, strict=True)
    ]
    counted = [name for name in kinds if name != skewed]
    if not all(name in counts for name in counted):
        return [*cells, OPEN]
    total, all_pairs = sum(wrong[name] for name in counted), sum(len(decisions[name]) for name in counted)
    others = "".join(f"; {name} {counts[name]}" for name in counted if name not in shown)
    refuted = total > LARGEST_ERROR * all_pairs or not any(pair.stopped for pair in decisions[NAMES["pacs"]])
    return [*cells, f"{REFUTED if refuted else 'not refuted'}: {total} of {all_pairs}{others}"]


def judge_part(columns: Columns, method: str) -> str:
    """In how many columns FedTAB is above the gate alone, so that what it has besides is needed."""
    gaps = [gap for _, seeds in columns.values() if (gap := gap_to(seeds, method))]
    needed = sum(excludes_zero(gap) for gap in gaps)
    return f"{PARTS[method]} needed in {needed} of {len(gaps)} columns" if gaps else OPEN


def verdicts(plan: Plan) -> str:
    """One row per rule, one column per data set, and what follows."""
    columns = results_by_column(plan)
    if not columns:
        return "Nothing is measured yet: `python benchmarks/fedtab.py --all`."

    lines = [
        *(gap_row(columns, rival, judge_rival(columns, rival, plan)) for rival in RIVALS),
        *(gap_row(columns, method, judge_equal_compute(columns, method)) for method in EQUAL_COMPUTE),
        ["seeds with a domain that trains and loses", *losing_row(columns)],
        ["another threshold moves the mean by", *threshold_row(columns, plan)],
        ["the gate is wrong in, of pairs of domains", *gate_row(columns, plan)],
        *(gap_row(columns, method, judge_part(columns, method)) for method in PARTS),
    ]
    heads = (head_of(name, seeds) for name, (_, seeds) in columns.items())
    return Table("", ("rule", *heads, "so far"), lines).markdown()


def both_tests() -> str:
    """The table of the first test, then that of the second."""
    return "\n\n".join(f"{name} test:\n\n{verdicts(plan)}" for name, plan in (("First", FIRST), ("Second", SECOND)))


BLOCKS = {"fedtab-verdicts": both_tests}
