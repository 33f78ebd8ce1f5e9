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

from fedwca.runs.carry_out import FinishedRun as Conducted
from fedwca.runs.carry_out import PreparedRun, carry_out
from fedwca.runs.log_to import build_loggers
from fedwca.cli.profiling import print_profile
from fedwca.cli.ranks import joined_ranks
from fedwca.cli.resume import resume_run, same_request
from fedwca.cli.tables import print_plan, print_table
from fedwca.engine.distributed.process_group import RankWorld
from fedwca.runs import memory_estimate as memory
from fedwca.runs.bench import split_trial
from fedwca.runs.round_state import FileCheckpointer
from fedwca.config.methods import component_values
from fedwca.config.run_config import Layer
from fedwca.runs.select_engine import engine_name, fix_trials_at_once
from fedwca.runs.select_kernels import choose_kernels
from fedwca.runs.rank_lifecycle import follow_run, lead_run
from fedwca.config.layers import RunPlan, resolve_plan
from fedwca.engine.free_memory import free_bytes
from fedwca.runs.setup import load, rehearse_components, resolve_device
from fedwca.runs.schedule import Schedule, together_at_most
from fedwca.registry import Registry
from fedwca.results.checkpoints import Checkpoints, RetentionPolicy
from fedwca.results.run import run_identity
from fedwca.results.run_files import read_configuration
from fedwca.results.run_folder import RunFolder, environment
from fedwca.results.run_files import SCHEMA


@dataclass(frozen=True)
class RunRequest:
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


def execute(request: RunRequest) -> None:
    """Run, then print the table or the JSON summary.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been trained by then where it could be known before.
    """
    done = start_run(request)
    show(done, request.as_json)
    if request.profile and not request.as_json:
        print_profile(json.loads((done.path / "profile.json").read_text()))


def show(done: Conducted, as_json: bool) -> None:
    """Print the table or the JSON summary."""
    if as_json:
        typer.echo(json.dumps(done.summary, indent=2))
    else:
        print_table(done.plan, done.table, done.dataset.name, done.summary, done.path)


def start_run(request: RunRequest) -> Conducted:
    """Check everything that can be checked, then run, with progress unless the request wants JSON alone.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been trained by then where it could be known before.
    """
    with joined_ranks(request.ranks_per_trial) as world:
        if world is not None and world.rank:
            follow_run(world)
        else:
            return _conduct(request, world)
    raise typer.Exit


def _conduct(request: RunRequest, world: RankWorld | None) -> Conducted:
    started = time.perf_counter()
    keep, loggers = RetentionPolicy.parse(request.keep), build_loggers(request.loggers)
    first = resolve_plan(request.layer, request.pairs, request.preset, request.file)
    device = resolve_device(first.config.device)
    there = request.reuse and request.out is not None and (request.out / "config.json").is_file()
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
    path = request.out or Path("runs") / f"{stamp}-{first.methods[-1][0].name}"
    if there:
        dataset, source = load(first.config)
        decided = _decide(request, source)
        same_request(path, described_plan(decided))
        return resume_run(path, request.as_json, request.quiet, (dataset, source))
    with RunFolder(path) as folder:
        try:
            dataset, source = load(first.config)
            decided = _decide(request, source)
            federation = split_trial(decided.config, dataset, source, 0, 0)
            domains = federation.metrics.domains
            rehearse_components(decided.config, decided.methods, dataset)
            federations = decided.config.source_models * decided.config.trials
            trained = sum(rounds > 0 for _, rounds in decided.methods)
            ranks = 1 if world is None else world.size
            most = together_at_most(ranks, federations, trained, request.ranks_per_trial)
            together = fix_trials_at_once(decided.config, len(dataset.classes), federation.clients, most)
            needed = memory.estimate_run(together, decided.methods, len(dataset.classes), federation)
            memory.refuse_if_too_large(needed, free_bytes(device), device, together.trials_at_once or 1)
            choice = choose_kernels(together, decided.methods, len(dataset.classes), federation.clients)
            together = together.model_copy(update={"kernels": choice.chosen})
            # Some kernels take more than the ones it was asked for with.
            needed = memory.estimate_run(together, decided.methods, len(dataset.classes), federation)
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
        keeper = FileCheckpointer(Checkpoints(path, run_identity(read_configuration(path)), keep))
        share = Schedule()
        if world is not None:
            digest = more["data_digest"]
            share = lead_run(world, decided.config, decided.methods, keeper, digest, request.ranks_per_trial)
        folder.write("environment.json", {**environment(device), "ranks": share.ranks, "kernels": choice.record})
        if not request.as_json:
            kernels = choice.sentence if engine_name(together) == "stacked" else ""
            print_plan(decided, dataset, source, device, folder.path, memory.describe_memory(needed), kernels)
        return carry_out(
            PreparedRun(
                *(folder, decided, dataset, source, domains, keeper, started, loggers),
                as_json=request.as_json,
                quiet=request.quiet,
                profile=request.profile,
                share=share,
                needed=needed,
                device=device,
            )
        )


def _decide(request: RunRequest, source: str) -> RunPlan:
    """The plan once the source domain is known: which it is may change what the preset says."""
    decided = resolve_plan(request.layer, request.pairs, request.preset, request.file, source)
    origins = {
        key: request.said.get(key, origin) if origin == "CLI" else origin for key, origin in decided.origins.items()
    }
    return replace(decided, config=decided.config.model_copy(update={"source": source}), origins=origins)


def described_plan(decided: RunPlan) -> dict[str, Any]:
    """The resolved configuration, what each method is made of, and where values came from."""
    methods = {
        method.name: {"label": method.label, "rounds": rounds, "components": component_values(method)}
        for method, rounds in decided.methods
    }
    return {"config": decided.config.model_dump(mode="json"), "methods": methods, "origins": decided.origins}
