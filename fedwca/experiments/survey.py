"""Where each method of a stopped run goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedwca.results.checkpoints import Checkpoints, Saved, Unit


def survey(
    checkpoints: Checkpoints,
    units: Mapping[Unit, int],
    records: Iterable[Mapping[str, Any]],
    together: Sequence[Sequence[tuple[int, int]]] = (),
) -> tuple[dict[Unit, Saved | None], list[str]]:
    """Where each unit of a stopped run goes on, and sentences on what is damaged.

    Args:
        checkpoints: of the run.
        units: all units with their rounds.
        records: the run's rounds so far.
        together: federations (source model, trial) that go through rounds together; where some are ahead, they go
            back to where all of them stood.

    Returns:
        The newest usable checkpoint of each unit that was begun; None for a unit that is finished without any.

    Raises:
        CheckpointError: see `Checkpoints.latest`.
    """
    last: dict[Unit, int] = {}
    for record in records:
        unit = Unit(record["source_model"], record["trial"], record["method"])
        if record["round"] == last.get(unit, -2) + 1:
            last[unit] = record["round"]
    begun: dict[Unit, Saved | None] = {}
    damaged: list[str] = []
    for unit, rounds in units.items():
        if unit not in last:
            continue
        saved, sentences = checkpoints.latest(unit, last[unit])
        damaged += [f"{sentence}; going on from round {saved.round + 1 if saved else 0}" for sentence in sentences]
        ended = last[unit] == rounds - 1 and not checkpoints.files(unit)
        if saved is not None:
            begun[unit] = saved
        elif ended and (rounds or checkpoints.keep.ended == 0):
            begun[unit] = None
    for group in together:
        for method in dict.fromkeys(unit.method for unit in units):
            _level(checkpoints, begun, [Unit(*at, method) for at in group])
    return begun, damaged


def _level(checkpoints: Checkpoints, begun: dict[Unit, Saved | None], units: Sequence[Unit]) -> None:
    """Put units that go together back to the last round that all of them have, where its points are still there."""
    if not any(begun.get(unit) for unit in units) or any(unit in begun and begun[unit] is None for unit in units):
        return
    stand = {unit: saved.round if (saved := begun.get(unit)) else -1 for unit in units}
    to = min(stand.values())
    back = {unit: checkpoints.latest(unit, to)[0] for unit in units if stand[unit] > to}
    if all(saved is not None and saved.round == to for saved in back.values()):
        begun |= back
