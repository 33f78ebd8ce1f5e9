"""The checkpoint from which each method of a stopped run is resumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedwca.config.resolve_config import RunPlan
from fedwca.errors import CheckpointError
from fedwca.results.checkpoints import Checkpoints, NoWholeCheckpoint
from fedwca.results.diverged_runs import DIVERGED
from fedwca.results.saved_checkpoint import SavedCheckpoint
from fedwca.results.trial_key import TrialKey
from fedwca.results.unit import Unit
from fedwca.results.write_run import RunFolder
from fedwca.runs.bench_units import group_trials, remaining_units, units_of
from fedwca.runs.reporter import RunReporter


def find_resume_points(
    checkpoints: Checkpoints,
    units: Mapping[Unit, int],
    records: Iterable[Mapping[str, Any]],
    together: Sequence[Sequence[TrialKey]] = (),
) -> tuple[dict[Unit, SavedCheckpoint | None], list[str]]:
    """The checkpoint each unit of a stopped run is resumed from, and a sentence for each problem found.

    Args:
        checkpoints: the run's checkpoints.
        units: all units, with their number of rounds.
        records: the run's records so far; a unit with a divergence record has ended.
        together: groups of trials that go through each round together; trials ahead of their group are set back to the
            last round that all of them finished.

    Returns:
        The newest usable checkpoint of each unit that was begun, and the sentences. The checkpoint is None for a unit
        that needs none: it diverged, or it is finished and its checkpoints were not kept or are all damaged.

    Raises:
        CheckpointError: see `Checkpoints.latest`.
    """
    last, diverged = _last_rounds(records)
    begun: dict[Unit, SavedCheckpoint | None] = dict.fromkeys(diverged)
    damaged: list[str] = []
    for unit, rounds in units.items():
        if unit not in last or unit in diverged:
            continue
        try:
            saved, sentences = checkpoints.latest(unit, last[unit])
        except NoWholeCheckpoint as error:
            damaged.append(_describe_loss(error, finished=last[unit] == rounds - 1))
            begun[unit] = None
            continue
        damaged += [f"{sentence}; going on from round {saved.round + 1 if saved else 0}" for sentence in sentences]
        finished = last[unit] == rounds - 1 and not checkpoints.files(unit)
        if saved is not None:
            begun[unit] = saved
        elif finished and (rounds or checkpoints.keep.ended == 0):
            begun[unit] = None
        elif last[unit] > 0 and not sentences:  # a killed process cannot lose that many rounds
            damaged.append(
                f"{unit.method} has records up to round {last[unit]} and no checkpoint that old, so it begins anew"
            )
    for group in together:
        for method in dict.fromkeys(unit.method for unit in units):
            group_units = {unit: units[unit] for trial in group if (unit := Unit(*trial, method)) in units}
            if not _level(checkpoints, begun, group_units, diverged):
                damaged.append(
                    f"trials of {method} that went through rounds together stand at different ones; they go on apart, "
                    "so last digits may differ"
                )
    return begun, damaged


def _describe_loss(error: NoWholeCheckpoint, finished: bool) -> str:
    if not finished:
        raise CheckpointError(f"{error}; remove {error.folder} to begin this method anew") from None
    return f"{error}; its rounds stay as they are, its models are lost"


def _last_rounds(records: Iterable[Mapping[str, Any]]) -> tuple[dict[Unit, int], dict[Unit, int]]:
    """By unit, the last round that is recorded without a gap before it; and by unit, the round in which it diverged."""
    last: dict[Unit, int] = {}
    diverged: dict[Unit, int] = {}
    for record in records:
        unit = Unit.of(record)
        if DIVERGED in record:
            diverged[unit] = record["round"]
        elif record["round"] == last.get(unit, -2) + 1:
            last[unit] = record["round"]
    return last, diverged


def _level(
    checkpoints: Checkpoints,
    begun: dict[Unit, SavedCheckpoint | None],
    units: Mapping[Unit, int],
    diverged: Mapping[Unit, int],
) -> bool:
    """Set units that run together back to the last round that all of them finished; returns whether that worked.

    Units that run together are at most one round apart. A larger gap has another cause, so those units stay as they
    are. A unit that diverged in a round that others have not finished is set back too: it diverges there again, while
    the others go on.
    """
    last_rounds = {unit: diverged.get(unit, _round(begun, unit, rounds)) for unit, rounds in units.items()}
    target = min(
        (round for unit, round in last_rounds.items() if unit not in diverged),
        default=max(last_rounds.values(), default=-1),
    )
    last_rounds = {unit: round for unit, round in last_rounds.items() if unit not in diverged or round > target}
    if max(last_rounds.values(), default=-1) - target > 1:
        return False
    rewound = {unit: checkpoints.at(unit, target) for unit, round in last_rounds.items() if round > target}
    if any(saved is None for saved in rewound.values()):
        return False
    begun |= rewound
    return True


def _round(begun: Mapping[Unit, SavedCheckpoint | None], unit: Unit, rounds: int) -> int:
    """The last finished round of a unit; -1 before round 0."""
    if unit not in begun:
        return -1
    saved = begun[unit]
    return rounds - 1 if saved is None else saved.round


def rewind_run(
    folder: RunFolder, plan: RunPlan, checkpoints: Checkpoints, reporter: RunReporter
) -> dict[Unit, SavedCheckpoint | None]:
    """Set a run back to the last undamaged checkpoint of every method; later records and checkpoints are removed.

    Returns:
        See `find_resume_points`.
    """
    folder.remove_leftovers()
    checkpoints.remove_leftovers()
    units = units_of(plan.config, plan.methods)
    trials = TrialKey.all_of(plan.config.source_models, plan.config.trials)
    together = group_trials(trials, plan.config.trials_at_once or 1)
    begun, damaged = find_resume_points(checkpoints, units, folder.records(), together)
    for sentence in damaged:
        reporter.warn(sentence)

    def keeps(record: Mapping[str, Any]) -> bool:
        unit = Unit.of(record)
        saved = begun.get(unit)
        return unit in begun and (saved is None or record["round"] <= saved.round)

    order = list(units)
    folder.rewrite(keeps, lambda record: (order.index(Unit.of(record)), record["round"]))
    remaining = remaining_units(plan.config, plan.methods, begun)
    for unit in units:
        if unit not in remaining:  # the process may have been killed before it dropped what need not stay
            checkpoints.end(unit)
        else:
            saved = begun.get(unit)
            checkpoints.rewind(unit, saved.round if saved else None)
    return begun
