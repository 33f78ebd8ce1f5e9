"""Runs that a table needs: finished ones are reused, unfinished ones go on, the rest is run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from fedwca.cli.execute import Request, conduct, described_plan
from fedwca.errors import InvalidConfig
from fedwca.experiments.config import RunConfig, validate
from fedwca.experiments.request import Plan, plan
from fedwca.experiments.spec import parse
from fedwca.results.runs import Run, read_run, readable_run, run_folders
from fedwca.results.store import plain
from fedwca.results.summary import Row

OWN_TO_METHODS = {
    *("aggregator", "clusterer", "pseudo_labeler", "objectives", "components"),
    *("baselines", "composed", "name", "rounds", "workers", "trials_at_once"),
}
"""Fields of a configuration that a method's parts and rounds say again, or that change no number."""


@dataclass(frozen=True)
class Gathered:
    """Everything a table needs to know of one source."""

    config: RunConfig
    table: list[Row]
    """In the order that was asked for."""
    runs: dict[str, Run]
    """The run that holds each method."""

    def records(self, method: str) -> list[dict[str, Any]]:
        """A method's rounds."""
        return [record for record in self.runs[method].records() if record["method"] == method]


def say(text: str) -> None:
    """A sentence for the user that is no part of the table."""
    typer.echo(text, err=True)


def gather(request: Request, out: Path, say: Callable[[str], None] = say) -> Gathered:
    """One source's runs: what is in ``out`` already is reused, the rest is run into a folder below it.

    Args:
        request: with its source named and its methods as baselines, none composed.
        out: folder of run folders.
        say: told what is reused and what goes on.
    """
    decided = plan(request.layer, request.pairs, request.preset, request.file)
    there, missing = sort_out(decided, out)
    name = dataset_name(decided.config)
    where = f"{name}, source {decided.config.source}"
    for path in dict.fromkeys(run.path for run in there.values()):
        labels = [decided_label(decided, name) for name, run in there.items() if run.path == path]
        say(f"{where}: {', '.join(labels)} from {path}, finished with the same configuration, not run again")
    if missing:
        words = {parse(text).name: text for text in decided.config.baselines}
        layer = {**request.layer, "baselines": [words[name] for name in missing], "composed": False}
        path = place(replace(request, layer=layer), out, f"{name}-{decided.config.source}")
        done = conduct_or_resume(replace(request, layer=layer, out=path), say)
        there |= dict.fromkeys(missing, done)
    tables = {run.path: {row.name: row for row in run.table()} for run in there.values()}
    names = [method.name for method, _ in decided.methods]
    return Gathered(decided.config, [tables[there[name].path][name] for name in names], there)


def dataset_name(config: RunConfig) -> str:
    """What tables and folders call the data: its name, or that of the folder of domains."""
    return config.data.name if config.dataset == "folder" and config.data and config.data.name else config.dataset


def decided_label(decided: Plan, name: str) -> str:
    """What tables call a method of a plan."""
    return next(method.label for method, _ in decided.methods if method.name == name)


def sort_out(decided: Plan, out: Path) -> tuple[dict[str, Run], list[str]]:
    """Methods of a plan with the finished run that holds each, and the names of those that no run holds."""
    wanted = plain(described_plan(decided)["methods"])
    there: dict[str, Run] = {}
    for run in filter(None, map(readable_run, run_folders(out))):
        if finished(run, decided.config):
            there |= {name: run for name in wanted if name not in there and run.methods.get(name) == wanted[name]}
    return there, [name for name in wanted if name not in there]


def finished(run: Run, config: RunConfig) -> bool:
    """Whether a run ended, on this data and with these settings, whatever its methods."""
    return run.complete and settings(run.config) == settings(config.model_dump(mode="json"))


def settings(config: Any) -> dict[str, Any] | None:
    """What decides the numbers of every method of a run; None for values that are no configuration."""
    try:
        values = validate(dict(config)).model_dump(mode="json")
    except InvalidConfig:
        return None
    shared = {kind: values["components"].get(kind, {}) for kind in ("dataset", "model")}
    return {**{key: value for key, value in values.items() if key not in OWN_TO_METHODS}, "shared": shared}


def place(request: Request, out: Path, name: str) -> Path:
    """The folder for a run: one that holds this very run unfinished, or else the first free one."""
    decided = plan(request.layer, request.pairs, request.preset, request.file)
    wanted, same = plain(described_plan(decided)["methods"]), settings(decided.config.model_dump(mode="json"))
    number = 1
    while True:
        path = out / (name if number == 1 else f"{name}-{number}")
        number += 1
        run = readable_run(path)
        if run is None:
            rounds = path / "rounds.jsonl"
            if not path.exists() or (rounds.is_file() and rounds.stat().st_size == 0):
                return path
        elif not run.complete and run.methods == wanted and settings(run.config) == same:
            return path


def conduct_or_resume(request: Request, say: Callable[[str], None]) -> Run:
    """Run into ``request.out``; an unfinished run that is there goes on, to the same bits."""
    assert request.out is not None
    begun = (request.out / "config.json").is_file()
    if begun:
        say(f"{request.out}: holds the same run, unfinished; it goes on")
    elif request.out.exists():
        shutil.rmtree(request.out)  # made, but nothing was run in it
    return read_run(conduct(replace(request, reuse=begun)).path)
