"""From a plan to a run that can set out: everything that is decided and checked between them, once for all runs.

A run that begins and one that is resumed differ in where values come from, not in what is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedwca.config.partition_and_domain import name_domain
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import RunConfig
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import ClientImages, Federation
from fedwca.engine.memory import MemoryEstimate, free_bytes, human_size
from fedwca.errors import FedwcaError
from fedwca.loggers import Logger
from fedwca.registry import Registry
from fedwca.results.checkpoints import Checkpoints, RetentionPolicy
from fedwca.results.environment import changed_values, describe_environment, describe_move, describe_start
from fedwca.results.low_trust import name_clients
from fedwca.results.read_run import run_identity
from fedwca.results.read_run_files import is_set_up, read_configuration, read_environment
from fedwca.results.run_schemas import SCHEMA
from fedwca.results.settings_without_effect import SAME_NUMBERS
from fedwca.results.write_run import RunFolder
from fedwca.runs import memory_estimate as memory
from fedwca.runs.check_components import rehearse_components
from fedwca.runs.checkpoint_digest import digest_checkpoint
from fedwca.runs.checkpointer import Checkpointer
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.clients_at_once import restore_trials_at_once, trials_at_once
from fedwca.runs.disk_estimate import check_disk_space, estimate_checkpoints
from fedwca.runs.engine_names import engine_name
from fedwca.runs.find_resume_points import rewind_run, units_of
from fedwca.runs.rank_lifecycle import lead_run
from fedwca.runs.reporter import PlannedRun, RunReporter
from fedwca.runs.round_record import seconds_spent
from fedwca.runs.run_images import describe_images, describe_places
from fedwca.runs.run_request import RunRanks
from fedwca.runs.select_kernels import KernelChoice, choose_kernels, restore_kernels
from fedwca.runs.split_trials import TrialSplits
from fedwca.runs.work_schedule import Schedule


@dataclass(frozen=True)
class ClaimedFolder:
    """A folder that is ours to write, and what is to be run in it."""

    folder: RunFolder
    plan: RunPlan
    dataset: FederatedDataset
    domain: str | None
    """Name of the one domain that is unlike the others: the source, or the target; None: there is none."""
    started: float
    """``time.perf_counter()`` when the run was asked for."""
    about: Mapping[str, Any]
    """What ``config.json`` says so far."""
    loggers: Sequence[Logger]
    profile: bool = False

    @property
    def earlier(self) -> Mapping[str, Any] | None:
        """What ``config.json`` says of a run that goes on; None for one that begins."""
        return self.about if is_set_up(self.about) else None


def prepare_run(claimed: ClaimedFolder, reporter: RunReporter, ranks: RunRanks) -> PreparedRun:
    """Decide how many trials go together and by which kernels, check memory, and find where each method stands.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been trained by then.
    """
    folder, plan, dataset = claimed.folder, claimed.plan, claimed.dataset
    device = resolve_device(plan.config.device)
    splits = TrialSplits(plan.config, dataset, claimed.domain)
    first = splits.first()
    tests = [len(client.test) for client in first.everybody]
    if unmeasured := describe_unmeasured(tests, first.least_measured, len(tests) - len(first)):
        reporter.warn(unmeasured)
    if claimed.earlier is None:
        check_disk_space(folder.path, plan, claimed.about["keep"], first, len(dataset.classes))
        rehearse_components(plan.config, plan.methods, dataset)
    config, kernels, needed = size_run(claimed, first, device, reporter)
    domains, digests = first.measured, describe_images(dataset)
    if claimed.earlier is None:
        decided: dict[str, Any] = {
            "config": {**claimed.about["config"], **name_domain(plan.config, claimed.domain)},
            "dataset_name": dataset.name,
            "classes": dataset.classes,
            "domains": domains,
            **({"newcomers": len(domains) - len(first)} if first.newcomers else {}),
            **digests,
            "device": kind_of_device(device, ranks),
            "trials_at_once": config.trials_at_once,
            "kernels": kernels.chosen,
        }
        folder.write("config.json", {**claimed.about, **decided})
    plan = replace(plan, config=config)
    checkpoints = Checkpoints(
        folder.path, run_identity(read_configuration(folder.path)), RetentionPolicy.parse(claimed.about["keep"])
    )
    begun = {} if claimed.earlier is None else rewind_run(folder, plan, checkpoints, reporter)
    records, own = folder.records(), {method.name for method, _ in plan.methods if method.start is None}
    sources = {r["source_model"]: r for r in records if r["round"] == -1 and r["method"] in own}
    checkpointer, schedule = Checkpointer(checkpoints, begun, sources), Schedule()
    if ranks.world is not None:
        schedule = lead_run(ranks.world, config, plan.methods, checkpointer, digests, ranks.per_trial)
    done = sum(record["round"] >= 0 for record in records)
    here = {**describe_environment(device), **describe_start(), "ranks": schedule.ranks, "kernels": kernels.record}
    if moved := note_environment(folder, here, done):
        reporter.warn(moved)
    told = kernels.sentence if engine_name(config) == "stacked" else ""
    stays = estimate_checkpoints(plan, claimed.about["keep"], first, len(dataset.classes))
    disk = f"checkpoints about {human_size(stays)} (--keep {claimed.about['keep']})"
    features = memory.describe_embeddings(config, len(dataset.classes), first)
    sizes = (memory.describe_memory(needed), disk, told, features)
    reporter.planned(PlannedRun(plan, dataset, claimed.domain, device, folder.path, *sizes))
    if claimed.earlier is not None:
        reporter.resumed(done, sum(units_of(plan.config, plan.methods).values()))
    return PreparedRun(
        *(folder, plan, splits, domains, checkpointer, claimed.started, claimed.loggers, schedule, needed, device),
        profile=claimed.profile,
        before=sum(map(seconds_spent, records)),
    )


def describe_request(plan: RunPlan, run: Path, keep: str, loggers: Sequence[Logger]) -> dict[str, Any]:
    """What ``config.json`` says of a run before anything is looked at or decided.

    Args:
        plan: what is asked for.
        run: its folder.
        keep: which checkpoints stay.
        loggers: where numbers go, too.
    """
    checkpoint = digest_checkpoint(plan.config)
    return {
        **plan.described(),
        **({} if checkpoint is None else {"checkpoint_digest": checkpoint}),
        "schema": SCHEMA,
        "places": describe_places(run),
        "identity_without": SAME_NUMBERS,
        "keep": keep,
        "loggers": [Registry.dump(logger) for logger in loggers],
    }


def note_environment(folder: RunFolder, here: Mapping[str, Any], done: int) -> str | None:
    """Write down on what a run is made; for one that goes on, what is other than where it began.

    Args:
        folder: the run's; an ``environment.json`` there that is damaged is made again.
        here: the environment of this process.
        done: rounds kept.

    Returns:
        What to know of the difference, in a sentence; None where nothing that makes numbers is other.
    """
    try:
        began = read_environment(folder.path)
    except FedwcaError:
        began = {}
    if not began:
        folder.write("environment.json", here)
        return None
    changed = changed_values(began, here)
    folder.write("environment.json", {**began, "resumed": {**began.get("resumed", {}), str(done): changed}})
    return describe_move(began, changed)


def describe_unmeasured(tests: Sequence[int], least: int = 3, new: int = 0) -> str | None:
    """What to know of clients without test images; None where all have some.

    Args:
        tests: test images of each client.
        least: images that a client that trains needs for one of them to be for test.
        new: how many of them, the last ones, are new clients, which are tested on all their images.

    >>> describe_unmeasured([2, 0, 3])
    '1 of 3 clients without test images (client 1): no mean counts it; clients need 3 images for a test image'
    >>> describe_unmeasured([2, 3, 0], new=1)
    '1 of 3 clients without test images (client 2): no mean counts it; new clients need an image'
    """
    without = [client for client, count in enumerate(tests) if count == 0]
    if not without:
        return None
    said = {
        f"clients need {least} images for a test image": without[0] < len(tests) - new,
        "new clients need an image": without[-1] >= len(tests) - new,
    }
    need = ", ".join(sentence for sentence, holds in said.items() if holds)
    if len(without) == len(tests):
        return f"no client has test images, so no accuracy can be measured; {need}"
    who, whom = name_clients(without, most=5), "it" if len(without) == 1 else "them"
    return f"{len(without)} of {len(tests)} clients without test images ({who}): no mean counts {whom}; {need}"


def kind_of_device(device: str, ranks: RunRanks) -> str:
    """A device as a run notes it: ranks have each their own, of one kind."""
    return device if ranks.world is None else device.partition(":")[0]


def size_run(
    claimed: ClaimedFolder, first: Federation, device: str, reporter: RunReporter
) -> tuple[RunConfig, KernelChoice, MemoryEstimate]:
    """The configuration with its number of trials at once and its kernels, why these, and the memory that it takes.

    Args:
        claimed: what is to be run.
        first: clients of the first trial; all trials have as many.
        device: where.
        reporter: told where a run goes on otherwise than it began.

    Raises:
        UsageError: it does not fit into memory, or the engine or the device has not what is asked for.
    """
    plan, classes, clients = claimed.plan, len(claimed.dataset.classes), first.clients
    if claimed.earlier is None:
        config = plan.config.model_copy(update={"trials_at_once": trials_at_once(plan.config, clients)})
    else:
        config = restore_sizes(plan.config, claimed.earlier, classes, clients, device, reporter)
    needed = memory.estimate_run(config, plan.methods, classes, first)
    memory.check_run_fits(needed, free_bytes(device), device, config.trials_at_once or 1)
    if claimed.earlier is None:
        kernels = choose_kernels(config, plan.methods, classes, clients)
    else:
        kernels = KernelChoice(restore_kernels(claimed.earlier.get("kernels", "eager"), device), "as before")
    config = config.model_copy(update={"kernels": kernels.chosen})
    # Some kernels take more than the ones it was asked for with.
    return config, kernels, memory.estimate_run(config, plan.methods, classes, first)


def restore_sizes(
    config: RunConfig,
    earlier: Mapping[str, Any],
    classes: int,
    clients: Sequence[ClientImages],
    device: str,
    reporter: RunReporter,
) -> RunConfig:
    """The configuration with the kernels and the number of trials at once that the run began with, if it still can be.

    Others would give other last digits.
    """
    before = earlier.get("trials_at_once", 1)
    kernels = restore_kernels(earlier.get("kernels", "eager"), device)
    config = config.model_copy(update={"kernels": kernels})
    config = restore_trials_at_once(config, classes, clients, before)
    if config.trials_at_once != before:
        now = f"{before} trials went through rounds together, and now {config.trials_at_once}"
        reporter.warn(f"{now}: last digits may differ")
    return config


@dataclass(frozen=True)
class PreparedRun:
    """A run that is decided, checked, and has its folder."""

    folder: RunFolder
    plan: RunPlan
    splits: TrialSplits
    """The data set, the domain that is unlike the others, and the clients of each trial."""
    domains: Sequence[str]
    """True domain of each client, K names, and behind them the groups of newcomers."""
    checkpointer: Checkpointer
    started: float
    """``time.perf_counter()`` when the run was asked for."""
    loggers: Sequence[Logger]
    schedule: Schedule
    """What this process does; others' records come to it."""
    memory: MemoryEstimate
    """Bytes by the estimate."""
    device: str
    profile: bool = False
    before: float = 0.0
    """Seconds that earlier processes spent on the rounds there are."""
