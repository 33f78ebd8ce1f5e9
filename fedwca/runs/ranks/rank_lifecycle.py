"""Start of a run on several ranks: rank 0 broadcasts the run, and each other rank checks that it agrees."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig, validate
from fedwca.engine.distributed.process_group import RankWorld
from fedwca.engine.precision import matmul_precision
from fedwca.errors import DataError
from fedwca.federated.method import Method
from fedwca.runs.bench_units import remaining_units
from fedwca.runs.load_data import load
from fedwca.runs.ranks.rank_schedule import RankSchedule
from fedwca.runs.ranks.version_check import check_versions, installed_versions
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resuming.checkpointer import Checkpointer
from fedwca.runs.run_images import describe_images
from fedwca.runs.run_request import RunRanks
from fedwca.runs.run_trials_and_methods import run_bench
from fedwca.runs.split_trials import TrialSplits


def lead_run(
    ranks: RunRanks,
    config: RunConfig,
    methods: Sequence[tuple[Method, int]],
    checkpointer: Checkpointer,
    digests: Mapping[str, str],
) -> RankSchedule:
    """On rank 0: broadcast the run to all ranks; returns rank 0's schedule.

    Args:
        ranks: all ranks, of which this process is one.
        config: what is to be run.
        methods: methods with their number of rounds.
        checkpointer: knows what an earlier process did, and saves what this one does.
        digests: digests of the images, see `describe_images`.
    """
    assert ranks.world is not None
    remaining = remaining_units(config, methods, checkpointer.begun)
    begun = {unit: saved.load() if saved and unit in remaining else saved for unit, saved in checkpointer.begun.items()}
    _, per_trial = ranks.divide(remaining)
    opening = {"config": config.model_dump(mode="json"), "begun": begun, "per_trial": per_trial}
    ranks.world.everyone.broadcast_object({**opening, "digests": digests, "versions": installed_versions()})
    return RankSchedule(ranks.world, per_trial, checkpointer.store)


def follow_run(world: RankWorld) -> None:
    """On every rank but 0: receive the run, do this rank's share, and send its records to rank 0.

    Raises:
        FedwcaError: this rank has other versions or images than rank 0.
        RankFailed: another rank cannot go on.
    """
    opening: dict[str, Any] = world.everyone.broadcast_object(None)
    if not opening:  # the run is already finished
        return
    check_versions(opening["versions"])
    config = validate(opening["config"])
    methods = compose(config)
    dataset, domain = load(config)
    if describe_images(dataset) != opening["digests"]:
        raise DataError(f"the images of {dataset.name} here are not those of rank 0; all ranks need the same")
    schedule, splits = RankSchedule(world, opening["per_trial"]), TrialSplits(config, dataset, domain)
    with matmul_precision(config.precision, resolve_device(config.device)):
        checkpointer, progress = Checkpointer(schedule, opening["begun"]), schedule.sending_progress()
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: schedule.send_warning(str(message))  # this rank is silent
            schedule.send_records(run_bench(config, methods, splits, progress, checkpointer, schedule))
