"""`fedwca resume`: a run that was stopped goes on where it stood, to the same numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedwca.config.layers import RunPlan
    from fedwca.data.dataset import FederatedDataset
    from fedwca.engine.distributed.process_group import RankWorld
    from fedwca.results.run_folder import RunFolder
    from fedwca.runs.carry_out import FinishedRun


def command(
    run: Annotated[str, typer.Argument(help="Run folder, or its name in runs/.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON alone.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    ranks_per_trial: Annotated[
        int | None,
        typer.Option(
            "--ranks-per-trial",
            help="Under torchrun: ranks that share a trial's clients; default: trials first.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Continue a run that was stopped, to the same numbers as if it had not been; a finished one shows its table."""
    from fedwca.cli.ranks import joined_ranks
    from fedwca.results.run import find_run
    from fedwca.runs.execute import show

    with joined_ranks(ranks_per_trial) as world:
        if world is None or world.rank == 0:
            show(resume_run(find_run(run), as_json, quiet, world=world, ranks_per_trial=ranks_per_trial), as_json)
            return
        from fedwca.runs.rank_lifecycle import follow_run

        follow_run(world)


def resume_run(
    path: Path,
    as_json: bool = False,
    quiet: bool = False,
    loaded: tuple[FederatedDataset, str] | None = None,
    world: RankWorld | None = None,
    ranks_per_trial: int | None = None,
) -> FinishedRun:
    """Continue the run in a folder; one that is finished is read.

    Args:
        path: the run folder.
        as_json: say nothing but warnings.
        quiet: no progress.
        loaded: the run's data set and source domain, where they are at hand.
        world: all ranks, where there are several; this is rank 0.
        ranks_per_trial: ranks that share the clients of a trial.

    Raises:
        UsageError: it cannot be continued, or another process is at work on it.
        FedwcaError: its checkpoints, its data or what is installed do not fit it any more.
    """
    from fedwca.config.layers import RunPlan
    from fedwca.config.methods import compose
    from fedwca.config.run_config import validate
    from fedwca.errors import UsageError
    from fedwca.results.run import read_run
    from fedwca.results.run_files import read_configuration, read_records
    from fedwca.results.run_folder import RunFolder
    from fedwca.runs.carry_out import FinishedRun, tabulate
    from fedwca.runs.setup import load

    started = time.perf_counter()
    about = read_configuration(path)
    config = validate(about["config"])
    decided = RunPlan(config, compose(config), dict(about.get("origins", {})))
    if about.get("schema", 1) < 2:
        raise UsageError(f"{path}: was run before checkpoints were kept (schema 1), so it cannot be continued")
    _same_methods(path, about, decided)
    if read_run(path).state == "done":
        if world is not None:
            world.everyone.give({})  # nothing for anybody
        dataset, _ = loaded or load(config)
        summary = dict(read_run(path).summary)
        if not (as_json or quiet):
            typer.echo(f"{path} is finished; nothing is left to do", err=True)
        return FinishedRun(decided, dataset, tabulate(decided, read_records(path), about["domains"]), summary, path)
    with RunFolder(path, again=True) as folder:
        dataset, source = loaded or load(config)
        ranks = (world, ranks_per_trial)
        return _continue(folder, about, decided, dataset, source, started, as_json, quiet, ranks)


def _continue(
    folder: RunFolder,
    about: Mapping[str, Any],
    decided: RunPlan,
    dataset: FederatedDataset,
    source: str,
    started: float,
    as_json: bool,
    quiet: bool,
    ranks: tuple[RankWorld | None, int | None],
) -> FinishedRun:
    """Go back to the last checkpoint of every unit, and carry out what is left."""
    from fedwca.cli.tables import print_plan
    from fedwca.config.layers import RunPlan
    from fedwca.engine.free_memory import free_bytes
    from fedwca.errors import DataError
    from fedwca.results.checkpoints import Checkpoints, RetentionPolicy, Unit
    from fedwca.results.run import run_identity
    from fedwca.runs import memory_estimate as memory
    from fedwca.runs.bench import group_trials, split_trial
    from fedwca.runs.carry_out import PreparedRun, carry_out, seconds_spent
    from fedwca.runs.log_to import build_loggers
    from fedwca.runs.rank_lifecycle import lead_run
    from fedwca.runs.resume_points import find_resume_points
    from fedwca.runs.round_state import FileCheckpointer
    from fedwca.runs.schedule import Schedule
    from fedwca.runs.select_engine import engine_name, restore_trials_at_once
    from fedwca.runs.select_kernels import restore_kernels
    from fedwca.runs.setup import resolve_device

    device = resolve_device(decided.config.device)
    if dataset.digest() != about["data_digest"]:
        raise DataError(f"{folder.path}: the images of {dataset.name} are not those the run began with; run it anew")
    if (device if ranks[0] is None else device.partition(":")[0]) != about["device"]:
        typer.echo(f"Warning: begun on {about['device']}, going on on {device}: last digits may differ", err=True)
    federation = split_trial(decided.config, dataset, source, 0, 0)
    # Other kernels would give other last digits.
    before, kernels = about.get("trials_at_once", 1), restore_kernels(about.get("kernels", "eager"), device)
    config = decided.config.model_copy(update={"kernels": kernels})
    config = restore_trials_at_once(config, len(dataset.classes), federation.clients, before)
    if config.trials_at_once != before:
        now = f"{before} trials went through rounds together, and now {config.trials_at_once}"
        typer.echo(f"Warning: {now}: last digits may differ", err=True)
    decided = RunPlan(config, decided.methods, decided.origins)
    needed = memory.estimate_run(config, decided.methods, len(dataset.classes), federation)
    memory.refuse_if_too_large(needed, free_bytes(device), device, config.trials_at_once or 1)
    del federation
    checkpoints = Checkpoints(folder.path, run_identity(about), RetentionPolicy.parse(about["keep"]))
    folder.sweep()
    checkpoints.sweep()
    units = {
        Unit(index, trial, method.name): rounds
        for index in range(config.source_models)
        for trial in range(config.trials)
        for method, rounds in decided.methods
    }
    federations = list(dict.fromkeys((unit.source_model, unit.trial) for unit in units))
    together = group_trials(federations, config.trials_at_once or 1)
    begun, damaged = find_resume_points(checkpoints, units, folder.records(), together)
    for sentence in damaged:
        typer.echo(f"Warning: {sentence}", err=True)

    def wanted(record: dict[str, Any]) -> bool:
        unit = Unit(record["source_model"], record["trial"], record["method"])
        saved = begun.get(unit)
        return unit in begun and (saved is None or record["round"] <= saved.round)

    order = list(units)
    folder.rewrite(
        wanted, lambda r: (order.index(Unit(r["source_model"], r["trial"], r["method"])), r["round"])
    )  # fmt: skip
    for unit in units:
        saved = begun.get(unit)
        checkpoints.rewind(unit, saved.round if saved else None)
    earlier = sum(seconds_spent(record) for record in folder.records())
    if not as_json:
        told = f"{kernels} (as before)" if engine_name(config) == "stacked" else ""
        print_plan(decided, dataset, source, device, folder.path, memory.describe_memory(needed), told)
        done = sum(record["round"] >= 0 for record in folder.records())
        typer.echo(f"Going on after {done} of {sum(units.values())} rounds")
    keeper, loggers = FileCheckpointer(checkpoints, begun), build_loggers(about["loggers"])
    domains, share = about["domains"], Schedule()
    if ranks[0] is not None:
        share = lead_run(ranks[0], config, decided.methods, keeper, about["data_digest"], ranks[1])
    work = PreparedRun(
        *(folder, decided, dataset, source, domains, keeper, started, loggers),
        as_json=as_json,
        quiet=quiet,
        share=share,
        needed=needed,
        device=device,
        before=earlier,
    )
    return carry_out(work)


def same_request(path: Path, asked: Mapping[str, Any]) -> None:
    """Refuse to continue a run of another configuration.

    Args:
        path: folder of the run that is there.
        asked: what is asked for now, as `fedwca.runs.execute.described_plan` gives it.

    Raises:
        UsageError: they differ; says in what.
    """
    from fedwca.config.run_config import validate
    from fedwca.errors import UsageError
    from fedwca.results.compare_runs import differing_settings
    from fedwca.results.run_files import read_configuration

    about = read_configuration(path)
    stored = {**about, "config": validate(about["config"]).model_dump(mode="json")}
    if different := differing_settings(stored, asked):
        shown = ", ".join(f"{key} is {there} there, {here} here" for key, (there, here) in list(different.items())[:3])
        raise UsageError(f"{path}: holds a run of another configuration: {shown}; name another folder")


def _same_methods(path: Path, about: Mapping[str, Any], decided: RunPlan) -> None:
    """Refuse to go on with methods that have become others.

    Raises:
        UsageError: a component has other fields now than when the run began.
    """
    from fedwca.errors import UsageError
    from fedwca.results.compare_runs import differing_settings
    from fedwca.runs.execute import described_plan

    if different := differing_settings(about, {**described_plan(decided), "config": about["config"]}):
        key, (there, here) = next(iter(different.items()))
        raise UsageError(
            f"{path}: was begun with other components than are installed now: {key} was {there}, is {here}; run it anew"
        )
