"""A run from request to table: checks first, then work that is written down as it comes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from fedwca.cli.carry_out import Conducted as Conducted
from fedwca.cli.carry_out import Work, carry_out
from fedwca.cli.loggers import built
from fedwca.cli.profiling import print_profile
from fedwca.cli.ranks import joined
from fedwca.cli.resume import go_on, same_request
from fedwca.cli.tables import print_plan, print_table
from fedwca.engine.ranks import World
from fedwca.experiments import memory
from fedwca.experiments.bench import draw
from fedwca.experiments.checkpoint import Kept
from fedwca.experiments.compose import described
from fedwca.experiments.config import Layer
from fedwca.experiments.engines import engine_name, settled
from fedwca.experiments.kernels import choose_kernels
from fedwca.experiments.ranked import follow, lead
from fedwca.experiments.request import Plan, plan
from fedwca.experiments.room import free
from fedwca.experiments.setup import load, rehearse, resolve_device
from fedwca.experiments.share import Share, together_at_most
from fedwca.registry import Registry
from fedwca.results.checkpoints import Checkpoints, Keep
from fedwca.results.runs import identity, read_about
from fedwca.results.store import SCHEMA, RunFolder, environment


@dataclass(frozen=True)
class Request:
    """What the command line said."""

    layer: Layer
    pairs: Sequence[tuple[str, str]]
    preset: str
    file: Path | None
    out: Path | None
    as_json: bool
    keep: str = "last"
    """Checkpoints that stay: ``last``, ``all``, ``none`` or a number."""
    loggers: Sequence[str] = ()
    """Where numbers go besides the run folder, each as ``name:field=value``."""
    quiet: bool = False
    """No progress; warnings and the table stay."""
    reuse: bool = False
    """Continue the run in ``out`` if one of this very configuration is there; a finished one is returned at once."""
    ranks_per_trial: int | None = None
    """Ranks that share the clients of a trial; None: trials first."""
    profile: bool = False
    """Keep where the time went, and a trace of one round, in the run folder."""
    said: Mapping[str, str] = field(default_factory=dict)
    """Dotted keys of the layer that a command or one of its options set, such as ``--quick``, with its name."""


def execute(request: Request) -> None:
    """Run, then print the table or the JSON summary.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been trained by then where it could be known before.
    """
    done = conduct(request)
    show(done, request.as_json)
    if request.profile and not request.as_json:
        print_profile(json.loads((done.path / "profile.json").read_text()))


def show(done: Conducted, as_json: bool) -> None:
    """Print the table or the JSON summary."""
    if as_json:
        typer.echo(json.dumps(done.summary, indent=2))
    else:
        print_table(done.plan, done.table, done.dataset.name, done.summary, done.path)


def conduct(request: Request) -> Conducted:
    """Check everything that can be checked, then run, with progress unless the request wants JSON alone.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been trained by then where it could be known before.
    """
    with joined(request.ranks_per_trial) as world:
        if world is not None and world.rank:
            follow(world)
        else:
            return _conduct(request, world)
    raise typer.Exit


def _conduct(request: Request, world: World | None) -> Conducted:
    started = time.perf_counter()
    keep, loggers = Keep.parse(request.keep), built(request.loggers)
    first = plan(request.layer, request.pairs, request.preset, request.file)
    device = resolve_device(first.config.device)
    there = request.reuse and request.out is not None and (request.out / "config.json").is_file()
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
    path = request.out or Path("runs") / f"{stamp}-{first.methods[-1][0].name}"
    if there:
        dataset, source = load(first.config)
        decided = _decide(request, source)
        same_request(path, described_plan(decided))
        return go_on(path, request.as_json, request.quiet, (dataset, source))
    with RunFolder(path) as folder:
        try:
            dataset, source = load(first.config)
            decided = _decide(request, source)
            federation = draw(decided.config, dataset, source, 0, 0)
            domains = federation.metrics.domains
            rehearse(decided.config, decided.methods, dataset)
            federations = decided.config.source_models * decided.config.trials
            trained = sum(rounds > 0 for _, rounds in decided.methods)
            ranks = 1 if world is None else world.size
            most = together_at_most(ranks, federations, trained, request.ranks_per_trial)
            together = settled(decided.config, len(dataset.classes), federation.clients, most)
            needed = memory.estimate(together, decided.methods, len(dataset.classes), federation)
            memory.refuse(needed, free(device), device, together.trials_at_once or 1)
            choice = choose_kernels(together, decided.methods, len(dataset.classes), federation.clients)
            together = together.model_copy(update={"kernels": choice.chosen})
            # Some kernels take more than the ones it was asked for with.
            needed = memory.estimate(together, decided.methods, len(dataset.classes), federation)
            del federation
        except BaseException:
            folder.discard()
            raise
        chosen = [Registry.dump(logger) for logger in loggers]
        more: dict[str, Any] = {
            "keep": request.keep,
            "loggers": chosen,
            "domains": domains,
            "data_digest": dataset.digest(),
            "device": device if world is None else device.partition(":")[0],
            "trials_at_once": together.trials_at_once,
            "kernels": choice.chosen,
        }
        folder.write("config.json", {**described_plan(decided), "schema": SCHEMA, **more})
        decided = replace(decided, config=together)
        keeper = Kept(Checkpoints(path, identity(read_about(path)), keep))
        share = Share()
        if world is not None:
            digest = more["data_digest"]
            share = lead(world, decided.config, decided.methods, keeper, digest, request.ranks_per_trial)
        folder.write("environment.json", {**environment(device), "ranks": share.ranks, "kernels": choice.record})
        if not request.as_json:
            kernels = choice.sentence if engine_name(together) == "stacked" else ""
            print_plan(decided, dataset, source, device, folder.path, memory.sentence(needed), kernels)
        return carry_out(
            Work(
                *(folder, decided, dataset, source, domains, keeper, started, loggers),
                as_json=request.as_json,
                quiet=request.quiet,
                profile=request.profile,
                share=share,
                needed=needed,
                device=device,
            )
        )


def _decide(request: Request, source: str) -> Plan:
    """The plan once the source domain is known: which it is may change what the preset says."""
    decided = plan(request.layer, request.pairs, request.preset, request.file, source)
    origins = {
        key: request.said.get(key, origin) if origin == "CLI" else origin for key, origin in decided.origins.items()
    }
    return replace(decided, config=decided.config.model_copy(update={"source": source}), origins=origins)


def described_plan(decided: Plan) -> dict[str, Any]:
    """The resolved configuration, what each method is made of, and where values came from."""
    methods = {
        method.name: {"label": method.label, "rounds": rounds, "components": described(method)}
        for method, rounds in decided.methods
    }
    return {"config": decided.config.model_dump(mode="json"), "methods": methods, "origins": decided.origins}
