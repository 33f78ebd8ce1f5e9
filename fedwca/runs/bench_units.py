"""The units of a bench, which are a method on a trial each, and the trials that go through rounds together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedwca.config.run_config import RunConfig
from fedwca.federated.method import Method
from fedwca.results.saved_checkpoint import SavedCheckpoint
from fedwca.results.trial_key import TrialKey
from fedwca.results.unit import Unit


def units_of(config: RunConfig, methods: Sequence[tuple[Method, int]]) -> dict[Unit, int]:
    """All units of a bench with their number of rounds, ordered by trial and then by method."""
    trials = TrialKey.all_of(config.source_models, config.trials)
    return {Unit(*trial, method.name): rounds for trial in trials for method, rounds in methods}


def remaining_units(
    config: RunConfig, methods: Sequence[tuple[Method, int]], begun: Mapping[Unit, SavedCheckpoint | None]
) -> dict[Unit, int]:
    """Units of `units_of` that no earlier process finished; ``begun`` is as for `Checkpointer`."""
    return {
        unit: rounds
        for unit, rounds in units_of(config, methods).items()
        if unit not in begun or ((saved := begun[unit]) is not None and saved.round != rounds - 1)
    }


def group_trials(trial_keys: Sequence[TrialKey], at_once: int) -> list[list[TrialKey]]:
    """Divide trials into groups that go through rounds together.

    >>> [len(group) for group in group_trials([TrialKey(0, 0), TrialKey(0, 1), TrialKey(1, 0)], 2)]
    [2, 1]
    """
    return [list(trial_keys[i : i + at_once]) for i in range(0, len(trial_keys), at_once)]
