"""Prepares a planned run for its first round: decides kernels and sizes, checks memory and disk, finds resume points.

New and resumed runs take the same steps; only the origin of some values differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedwca.config.build_component import architecture
from fedwca.config.partition_and_domain import name_domain
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import Federation
from fedwca.engine.memory import MemoryEstimate, free_bytes, human_size
from fedwca.loggers import Logger
from fedwca.registry import Registry
from fedwca.results.checkpoints import Checkpoints
from fedwca.results.diverged_runs import count_ended_rounds
from fedwca.results.environment import describe_environment, describe_start, plugin_code
from fedwca.results.read_run_files import is_set_up, read_configuration
from fedwca.results.retention_policy import RetentionPolicy
from fedwca.results.run_identity import run_identity
from fedwca.results.run_schemas import SCHEMA
from fedwca.results.settings_without_effect import SAME_NUMBERS
from fedwca.results.write_run import RunFolder
from fedwca.runs.bench_units import units_of
from fedwca.runs.check_components import dry_run_components
from fedwca.runs.check_model import check_model
from fedwca.runs.load_data import build_network
from fedwca.runs.note_environment import count_subgroups, note_environment
from fedwca.runs.ranks.rank_lifecycle import lead_run
from fedwca.runs.records.round_record import seconds_spent
from fedwca.runs.reporter import PlannedRun, RunReporter
from fedwca.runs.resources import memory_estimate as memory
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resources.clients_at_once import restore_trials_at_once, trials_at_once
from fedwca.runs.resources.disk_estimate import check_disk_space, estimate_checkpoints
from fedwca.runs.resources.engine_names import engine_name
from fedwca.runs.resources.select_kernels import KernelChoice, choose_kernels, restore_kernels
from fedwca.runs.resuming.checkpointer import Checkpointer
from fedwca.runs.resuming.find_resume_points import rewind_run
from fedwca.runs.resuming.start_files import digest_start_files
from fedwca.runs.run_images import describe_images, describe_places
from fedwca.runs.run_request import RunRanks
from fedwca.runs.split_trials import TrialSplits
from fedwca.runs.unmeasured_clients import describe_unmeasured
from fedwca.runs.work_schedule import Schedule


@dataclass(frozen=True)
class ClaimedFolder:
    """A run folder locked by this process, and what is to be run in it."""

    folder: RunFolder
    plan: RunPlan
    dataset: FederatedDataset
    domain: str | None
    """Name of the source or target domain; None: the partition has neither."""
    started: float
    """``time.perf_counter()`` when the run was requested."""
    about: Mapping[str, Any]
    """Contents of ``config.json`` so far."""
    loggers: Sequence[Logger]
    profile: bool = False

    @property
    def earlier(self) -> Mapping[str, Any] | None:
        """Contents of ``config.json`` of a resumed run; None for a new one."""
        return self.about if is_set_up(self.about) else None


def prepare_run(claimed: ClaimedFolder, reporter: RunReporter, ranks: RunRanks) -> PreparedRun:
    """Decide the number of trials at once and the kernels, check memory, and find each method's resume point.

    Raises:
        FedwcaError: the run cannot start; nothing has been trained by then.
    """
    folder, plan, dataset = claimed.folder, claimed.plan, claimed.dataset
    device = resolve_device(plan.config.device)
    splits = TrialSplits(plan.config, dataset, claimed.domain)
    federation = splits.first()
    test_counts = [len(client.test) for client in federation.all_clients]
    if federation.newcomers and plan.config.validation == 0:  # clients that train are to have none
        test_counts[: len(federation)] = [1] * len(federation)
    if unmeasured := describe_unmeasured(test_counts, federation.test_image_needs, len(test_counts) - len(federation)):
        reporter.warn(unmeasured)
    subgroups, ranks_per_trial = ranks.divide(units_of(plan.config, plan.methods))
    network = build_network(plan.config, len(dataset.classes), pretrained=plan.config.checkpoint is None)
    if claimed.earlier is None:  # before the estimate of memory, which passes images through the model
        check_model(network, architecture(plan.config).name)
    config, kernels, needed = size_run(claimed, network, federation, device, ranks_per_trial > 1, reporter)
    if claimed.earlier is None:
        dry_run_components(plan.config, plan.methods, network, dataset.classes, len(federation))
    plan, keep = replace(plan, config=config), claimed.about["keep"]
    checkpoint_bytes = estimate_checkpoints(plan, keep, federation, network, subgroups)
    domains, digests = federation.measured_domains, describe_images(dataset)
    if claimed.earlier is None:
        check_disk_space(folder.path, keep, checkpoint_bytes)
        decisions: dict[str, Any] = {
            "config": {**claimed.about["config"], **name_domain(plan.config, claimed.domain)},
            "dataset_name": dataset.name,
            "classes": dataset.classes,
            "domains": domains,
            **({"newcomers": len(domains) - len(federation)} if federation.newcomers else {}),
            **digests,
            "device": kind_of_device(device, ranks),
            "trials_at_once": config.trials_at_once,
            "kernels": kernels.chosen,
        }
        folder.write("config.json", {**claimed.about, **decisions})
    checkpoints = Checkpoints(folder.path, run_identity(read_configuration(folder.path)), RetentionPolicy.parse(keep))
    resume_points = {} if claimed.earlier is None else rewind_run(folder, plan, checkpoints, reporter)
    records, shared_start = folder.records(), {method.name for method, _ in plan.methods if method.central is None}
    sources = {r["source_model"]: r for r in records if r["round"] == -1 and r["method"] in shared_start}
    checkpointer, schedule = Checkpointer(checkpoints, resume_points, sources), Schedule()
    if ranks.world is not None:
        schedule = lead_run(ranks, config, plan.methods, checkpointer, digests)
        warn_of_fewer_together(config.trials_at_once or 1, 1 if schedule.size > 1 else config.trials_at_once, reporter)
    finished_rounds = count_ended_rounds(records)
    environment = {
        **describe_environment(device),
        **describe_start(),
        "plugin_code": plugin_code(claimed.about),
        "ranks": schedule.ranks,
        "kernels": kernels.record,
    }
    if environment_change := note_environment(folder, environment, finished_rounds):
        reporter.warn(environment_change)
    kernels_text = kernels.sentence if engine_name(config) == "stacked" else ""
    disk_text = f"checkpoints about {human_size(checkpoint_bytes)} (--keep {keep})"
    embeddings_text = memory.describe_embeddings(network, federation)
    descriptions = (memory.describe_memory(needed), disk_text, kernels_text, embeddings_text)
    reporter.planned(PlannedRun(plan, dataset, claimed.domain, device, folder.path, *descriptions))
    if claimed.earlier is not None:
        reporter.resumed(finished_rounds, sum(units_of(plan.config, plan.methods).values()))
    return PreparedRun(
        *(folder, plan, splits, domains, checkpointer, claimed.started, claimed.loggers, schedule, needed, device),
        profile=claimed.profile,
        before=sum(map(seconds_spent, records)) / count_subgroups(folder.path),  # they went through rounds side by side
    )


def describe_request(plan: RunPlan, run: Path, keep: str, loggers: Sequence[Logger]) -> dict[str, Any]:
    """Contents of ``config.json`` before data are read and anything is decided.

    Args:
        plan: the requested run.
        run: its folder.
        keep: retention policy of checkpoints.
        loggers: the run's loggers.
    """
    return {
        **plan.described(),
        **digest_start_files(plan.config),
        "schema": SCHEMA,
        "places": describe_places(run),
        "identity_without": SAME_NUMBERS,
        "keep": keep,
        "loggers": [Registry.dump(logger) for logger in loggers],
    }


def kind_of_device(device: str, ranks: RunRanks) -> str:
    """The device as a run records it; with several ranks its type alone, since each rank has its own device."""
    return device if ranks.world is None else device.partition(":")[0]


def size_run(
    claimed: ClaimedFolder, network: Network, first: Federation, device: str, shared: bool, reporter: RunReporter
) -> tuple[RunConfig, KernelChoice, MemoryEstimate]:
    """The configuration with its trials at once and kernels filled in, the kernel choice, and the memory estimate.

    Args:
        claimed: what is to be run.
        network: a network of the source model's shape.
        first: clients of the first trial; all trials have the same number of clients.
        device: the run's device.
        shared: whether ranks share the clients of a new run's trials, which then go one after the other.
        reporter: warned if a run is resumed with other settings than it began with, or trials do not go together.

    Raises:
        UsageError: the run does not fit into memory, or the engine or device does not support the settings.
    """
    plan, clients = claimed.plan, first.clients
    if claimed.earlier is None:
        together = trials_at_once(plan.config, clients)
        if shared and together > 1:
            reporter.warn(f"ranks share each trial's clients: trials go one after the other, not {together} together")
        config = plan.config.model_copy(update={"trials_at_once": 1 if shared else together})
    else:  # other kernels and trials at once than the run began with would change the last digits of results
        original = claimed.earlier.get("trials_at_once", 1)
        kernels = KernelChoice(restore_kernels(claimed.earlier.get("kernels", "eager"), device), "as before")
        config = plan.config.model_copy(update={"kernels": kernels.chosen})
        config = restore_trials_at_once(config, network, clients, original)
        warn_of_fewer_together(original, config.trials_at_once, reporter)
    needed = memory.estimate_run(config, plan.methods, network, first)
    memory.check_run_fits(needed, free_bytes(device), device, config.trials_at_once or 1)
    if claimed.earlier is None:
        kernels = choose_kernels(config, plan.methods, network, clients)
    config = config.model_copy(update={"kernels": kernels.chosen})
    # Estimated again: the chosen kernels may need more memory than the requested setting.
    return config, kernels, memory.estimate_run(config, plan.methods, network, first)


def warn_of_fewer_together(original: int, now: int | None, reporter: RunReporter) -> None:
    """Warn if another number of trials goes through each round together than when the run began."""
    if now != original:
        reporter.warn(f"{original} trials went through rounds together, and now {now}: last digits may differ")


@dataclass(frozen=True)
class PreparedRun:
    """A checked run with all decisions made, ready for its first round."""

    folder: RunFolder
    plan: RunPlan
    splits: TrialSplits
    """The data set, its source or target domain, and the clients of each trial."""
    domains: Sequence[str]
    """True domain of each of the K clients, followed by the group of each newcomer."""
    checkpointer: Checkpointer
    started: float
    """``time.perf_counter()`` when the run was requested."""
    loggers: Sequence[Logger]
    schedule: Schedule
    """The work of this process, which also receives the records of other ranks."""
    memory: MemoryEstimate
    """The estimate, in bytes."""
    device: str
    profile: bool = False
    before: float = 0.0
    """Seconds that earlier processes spent on the rounds that are kept."""
