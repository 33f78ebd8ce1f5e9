"""`fedwca resume`: a run that was stopped goes on where it stood, to the same numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedwca.cli.carry_out import Conducted
    from fedwca.data.dataset import FederatedDataset
    from fedwca.engine.ranks import World
    from fedwca.experiments.request import Plan
    from fedwca.results.store import RunFolder


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
    from fedwca.cli.execute import show
    from fedwca.cli.ranks import joined
    from fedwca.results.runs import find_run

    with joined(ranks_per_trial) as world:
        if world is None or world.rank == 0:
            show(go_on(find_run(run), as_json, quiet, world=world, ranks_per_trial=ranks_per_trial), as_json)
            return
        from fedwca.experiments.ranked import follow

        follow(world)


def go_on(
    path: Path,
    as_json: bool = False,
    quiet: bool = False,
    loaded: tuple[FederatedDataset, str] | None = None,
    world: World | None = None,
    ranks_per_trial: int | None = None,
) -> Conducted:
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
    from fedwca.cli.carry_out import Conducted, tabulate
    from fedwca.errors import UsageError
    from fedwca.experiments.compose import compose
    from fedwca.experiments.config import validate
    from fedwca.experiments.request import Plan
    from fedwca.experiments.setup import load
    from fedwca.results.runs import read_about, read_run
    from fedwca.results.store import RunFolder, read_records

    started = time.perf_counter()
    about = read_about(path)
    config = validate(about["config"])
    decided = Plan(config, compose(config), dict(about.get("origins", {})))
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
        return Conducted(decided, dataset, tabulate(decided, read_records(path), about["domains"]), summary, path)
    with RunFolder(path, again=True) as folder:
        dataset, source = loaded or load(config)
        ranks = (world, ranks_per_trial)
        return _continue(folder, about, decided, dataset, source, started, as_json, quiet, ranks)


def _continue(
    folder: RunFolder,
    about: Mapping[str, Any],
    decided: Plan,
    dataset: FederatedDataset,
    source: str,
    started: float,
    as_json: bool,
    quiet: bool,
    ranks: tuple[World | None, int | None],
) -> Conducted:
    """Go back to the last checkpoint of every unit, and carry out what is left."""
    from fedwca.cli.carry_out import Work, carry_out, spent
    from fedwca.cli.loggers import built
    from fedwca.cli.tables import print_plan
    from fedwca.errors import DataError
    from fedwca.experiments import memory
    from fedwca.experiments.bench import draw, groups
    from fedwca.experiments.checkpoint import Kept
    from fedwca.experiments.engines import engine_name, settled_again
    from fedwca.experiments.kernels import kernels_again
    from fedwca.experiments.ranked import lead
    from fedwca.experiments.request import Plan
    from fedwca.experiments.room import free
    from fedwca.experiments.setup import resolve_device
    from fedwca.experiments.share import Share
    from fedwca.experiments.survey import survey
    from fedwca.results.checkpoints import Checkpoints, Keep, Unit
    from fedwca.results.runs import identity

    device = resolve_device(decided.config.device)
    if dataset.digest() != about["data_digest"]:
        raise DataError(f"{folder.path}: the images of {dataset.name} are not those the run began with; run it anew")
    if (device if ranks[0] is None else device.partition(":")[0]) != about["device"]:
        typer.echo(f"Warning: begun on {about['device']}, going on on {device}: last digits may differ", err=True)
    federation = draw(decided.config, dataset, source, 0, 0)
    # Other kernels would give other last digits.
    before, kernels = about.get("trials_at_once", 1), kernels_again(about.get("kernels", "eager"), device)
    config = decided.config.model_copy(update={"kernels": kernels})
    config = settled_again(config, len(dataset.classes), federation.clients, before)
    if config.trials_at_once != before:
        now = f"{before} trials went through rounds together, and now {config.trials_at_once}"
        typer.echo(f"Warning: {now}: last digits may differ", err=True)
    decided = Plan(config, decided.methods, decided.origins)
    needed = memory.estimate(config, decided.methods, len(dataset.classes), federation)
    memory.refuse(needed, free(device), device, config.trials_at_once or 1)
    del federation
    checkpoints = Checkpoints(folder.path, identity(about), Keep.parse(about["keep"]))
    folder.sweep()
    checkpoints.sweep()
    units = {
        Unit(index, trial, method.name): rounds
        for index in range(config.source_models)
        for trial in range(config.trials)
        for method, rounds in decided.methods
    }
    federations = list(dict.fromkeys((unit.source_model, unit.trial) for unit in units))
    together = groups(federations, config.trials_at_once or 1)
    begun, damaged = survey(checkpoints, units, folder.records(), together)
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
    earlier = sum(spent(record) for record in folder.records())
    if not as_json:
        told = f"{kernels} (as before)" if engine_name(config) == "stacked" else ""
        print_plan(decided, dataset, source, device, folder.path, memory.sentence(needed), told)
        done = sum(record["round"] >= 0 for record in folder.records())
        typer.echo(f"Going on after {done} of {sum(units.values())} rounds")
    keeper, loggers = Kept(checkpoints, begun), built(about["loggers"])
    domains, share = about["domains"], Share()
    if ranks[0] is not None:
        share = lead(ranks[0], config, decided.methods, keeper, about["data_digest"], ranks[1])
    work = Work(
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
        asked: what is asked for now, as `fedwca.cli.execute.described_plan` gives it.

    Raises:
        UsageError: they differ; says in what.
    """
    from fedwca.errors import UsageError
    from fedwca.experiments.config import validate
    from fedwca.results.differences import differing
    from fedwca.results.runs import read_about

    about = read_about(path)
    stored = {**about, "config": validate(about["config"]).model_dump(mode="json")}
    if different := differing(stored, asked):
        shown = ", ".join(f"{key} is {there} there, {here} here" for key, (there, here) in list(different.items())[:3])
        raise UsageError(f"{path}: holds a run of another configuration: {shown}; name another folder")


def _same_methods(path: Path, about: Mapping[str, Any], decided: Plan) -> None:
    """Refuse to go on with methods that have become others.

    Raises:
        UsageError: a component has other fields now than when the run began.
    """
    from fedwca.cli.execute import described_plan
    from fedwca.errors import UsageError
    from fedwca.results.differences import differing

    if different := differing(about, {**described_plan(decided), "config": about["config"]}):
        key, (there, here) = next(iter(different.items()))
        raise UsageError(
            f"{path}: was begun with other components than are installed now: {key} was {there}, is {here}; run it anew"
        )
