"""A run from request to table: checks first, then work that is written down as it comes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from fedwca.cli.profiling import print_profile, profiling
from fedwca.cli.progress import watching
from fedwca.cli.tables import print_plan, print_table
from fedwca.data.dataset import FederatedDataset
from fedwca.errors import FedwcaError
from fedwca.experiments.bench import bench, draw
from fedwca.experiments.compose import described
from fedwca.experiments.config import Layer
from fedwca.experiments.request import Plan, plan
from fedwca.experiments.setup import load, rehearse, resolve_device
from fedwca.results.pictures import overview
from fedwca.results.store import RunFolder, environment
from fedwca.results.summary import Row, rows, summarise


@dataclass(frozen=True)
class Request:
    """What the command line said."""

    layer: Layer
    pairs: Sequence[tuple[str, str]]
    preset: str
    file: Path | None
    out: Path | None
    as_json: bool
    profile: bool = False


@dataclass(frozen=True)
class Conducted:
    """A run that has ended."""

    plan: Plan
    dataset: FederatedDataset
    table: list[Row]
    summary: dict[str, Any]
    """What ``summary.json`` holds."""
    path: Path
    """The run folder."""


def execute(request: Request) -> None:
    """Run, then print the table or the JSON summary.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been trained by then where it could be known before.
    """
    done = conduct(request)
    if request.as_json:
        typer.echo(json.dumps(done.summary, indent=2))
    else:
        print_table(done.plan, done.table, done.dataset.name, done.summary, done.path)
        if request.profile:
            print_profile(json.loads((done.path / "profile.json").read_text()))


def conduct(request: Request) -> Conducted:
    """Check everything that can be checked, then run, with progress unless the request wants JSON alone.

    Raises:
        FedwcaError: what is wrong, in a sentence; nothing has been trained by then where it could be known before.
    """
    started = time.perf_counter()
    first = plan(request.layer, request.pairs, request.preset, request.file)
    device = resolve_device(first.config.device)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
    folder = RunFolder(request.out or Path("runs") / f"{stamp}-{first.methods[-1][0].name}")
    try:
        dataset, source = load(first.config)
        # Which source it is may change what the preset says.
        decided = plan(request.layer, request.pairs, request.preset, request.file, source)
        draw(decided.config, dataset, source, 0, 0)
        rehearse(decided.config, decided.methods, dataset)
    except BaseException:
        folder.discard()
        raise
    decided = replace(decided, config=decided.config.model_copy(update={"source": source}))
    folder.write("config.json", described_plan(decided))
    folder.write("environment.json", environment(device))
    if not request.as_json:
        print_plan(decided, dataset, source, device, folder.path)
    prepared = started
    try:
        traced = decided.methods[-1][0].label if request.profile else None
        with watching(decided, request.as_json) as watched, profiling(traced, watched, folder) as progress:
            for record in bench(decided.config, decided.methods, dataset, source, progress):
                if prepared == started:  # the first record comes when the source models are there
                    prepared = time.perf_counter()
                folder.append(record)
    except FedwcaError:
        finish(folder, decided, dataset, started, prepared, complete=False)
        raise
    except KeyboardInterrupt:
        finish(folder, decided, dataset, started, prepared, complete=False)
        done = len(folder.records())
        typer.echo(f"Stopped; {done} rounds and a summary of them are kept in {folder.path}", err=True)
        raise typer.Exit(130) from None
    table, summary = finish(folder, decided, dataset, started, prepared, complete=True)
    return Conducted(decided, dataset, table, summary, folder.path)


def dataset_domains(decided: Plan, dataset: FederatedDataset) -> list[str]:
    """True domain of each client, K names."""
    config = decided.config
    return [name for name in dataset.domains if name != config.source for _ in range(config.clients)]


def finish(
    folder: RunFolder, decided: Plan, dataset: FederatedDataset, started: float, prepared: float, complete: bool
) -> tuple[list[Row], dict[str, Any]]:
    """Write the summary and the pictures; returns the table's rows and the summary."""
    records = folder.records()
    labels = {method.name: method.label for method, _ in decided.methods}
    table = rows(records, labels, dataset_domains(decided, dataset))
    seconds = dict.fromkeys(labels, 0.0)
    for record in records:
        seconds[record["method"]] += sum(record.get("seconds", {}).get(part, 0.0) for part in ("round", "evaluate"))
    now = time.perf_counter()
    summary = {
        "methods": summarise(table),
        "config": decided.config.model_dump(mode="json"),
        "timing": {
            "total_seconds": now - started,
            "setup_seconds": prepared - started,
            "run_seconds": now - prepared,
            "methods": seconds,
        },
        "complete": complete,
    }
    folder.write("summary.json", summary)
    if table:
        overview(records, table, folder.path / "overview.png", title(decided, dataset.name))
    return table, json.loads((folder.path / "summary.json").read_text())


def title(decided: Plan, name: str) -> str:
    """What was run, in a line."""
    config = decided.config
    who = f"{config.clients} clients per target domain"
    return f"{name}, source {config.source}, {who}, {config.rounds} rounds, seed {config.seed}"


def described_plan(decided: Plan) -> dict[str, Any]:
    """The resolved configuration, what each method is made of, and where values came from."""
    methods = {
        method.name: {"label": method.label, "rounds": rounds, "components": described(method)}
        for method, rounds in decided.methods
    }
    return {"config": decided.config.model_dump(mode="json"), "methods": methods, "origins": decided.origins}
