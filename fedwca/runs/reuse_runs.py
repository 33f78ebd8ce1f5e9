"""Runs that a table needs: finished ones are reused, unfinished ones go on, the rest is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedwca.config.component_registries import registry_of
from fedwca.config.idle_settings import without_idle_tables
from fedwca.config.method_spec import PARTS, parse_method
from fedwca.config.resolve_config import RunPlan, type_components
from fedwca.config.run_config import RunConfig, validate
from fedwca.core.plain_values import to_plain
from fedwca.errors import CheckpointError, DatasetMissing, FedwcaError, UsageError
from fedwca.results.describe_run import data_name, special_domain, trained_methods
from fedwca.results.diverged_runs import ended_rounds
from fedwca.results.find_runs import run_folders
from fedwca.results.read_run import Run, read_if_run, read_run
from fedwca.results.settings_without_effect import SAME_NUMBERS
from fedwca.results.table_rows import Record, Row
from fedwca.results.trial_key import TrialKey
from fedwca.results.write_run import is_empty_folder
from fedwca.runs.checkpoint_digest import digest_checkpoint
from fedwca.runs.load_data import load
from fedwca.runs.reporter import RunReporter
from fedwca.runs.resume_checks import differing_request
from fedwca.runs.run_images import check_same_data, check_same_digest
from fedwca.runs.run_request import RunRequest
from fedwca.runs.start_run import start_run

OWN_TO_METHODS = {
    *(*PARTS, "components", "methods", "baselines", "composed", "name", "rounds", *SAME_NUMBERS),
}
"""Fields of a configuration that a method's parts, values and rounds say again, or that change no number."""


@dataclass(frozen=True)
class CollectedRuns:
    """Everything a table needs to know of one source, or of one target."""

    config: RunConfig
    table: list[Row]
    """In the order that was asked for."""
    runs: dict[str, Run]
    """The run that holds each method."""

    @property
    def trained(self) -> set[str]:
        """Methods that train."""
        return trained_methods({name: run.methods[name] for name, run in self.runs.items()})

    def records(self, method: str) -> list[Record]:
        """A method's rounds that came to their end."""
        return ended_rounds(self.lines(method))

    def lines(self, method: str) -> list[Record]:
        """A method's rounds, with those in which it diverged."""
        return [record for record in self.runs[method].lines if record["method"] == method]


def collect_runs(request: RunRequest, out: Path, reporter: RunReporter) -> CollectedRuns:
    """Runs of one source or target: what is in ``out`` already is reused, the rest is run into a folder below it.

    Args:
        request: with that domain named and its methods as baselines, none composed.
        out: folder of run folders.
        reporter: told what is reused and what goes on.

    Raises:
        DataError: runs that are there were made on other images than each other, or than there are now.
        FedwcaError: why what is missing cannot be run.
    """
    plan = request.plan()
    there, missing = sort_methods(plan, out)
    check_same_data(there.values())
    name = dataset_name(plan.config)
    where = f"{name}, {special_domain(plan.config.model_dump())}"
    if there:  # other domains may be run now, on the images there are now, and stand beside these numbers
        try:
            check_same_images(plan.config, there.values())
        except DatasetMissing:
            if missing:
                raise
            reporter.warn(f"{where}: the images are not there, so it is not known whether they are still the same")
    if there and (file := plan.config.checkpoint) is not None:
        if (now := digest_checkpoint(plan.config)) is not None:
            check_same_checkpoint(plan, now, there)
        elif not missing:  # what is missing cannot be run, which it says itself
            reporter.warn(f"{where}: {file} is not there, so it is not known whether it is still the same")
    for path in dict.fromkeys(run.path for run in there.values()):
        labels = [plan_label(plan, name) for name, run in there.items() if run.path == path]
        reporter.note(f"{where}: {', '.join(labels)} from {path}, finished with the same configuration, not run again")
    if missing:
        rest = place_run(request, missing, out, f"{name}-{plan.domain or plan.config.partition}")
        there |= dict.fromkeys(missing, start_or_resume(rest, reporter))
    warn_of_other_source_models(there.values(), reporter)
    tables = {run.path: {row.name: row for row in run.table} for run in there.values()}
    # A run that had other methods beside one may call it otherwise.
    rows = [replace(tables[there[m.name].path][m.name], label=m.label) for m, _ in plan.methods]
    return CollectedRuns(plan.config, rows, there)


def check_same_images(config: RunConfig, runs: Iterable[Run]) -> None:
    """See that finished runs were made on the images there are now.

    Raises:
        DataError: one was made on others.
    """
    dataset, _ = load(config)
    for run in runs:
        check_same_digest(dataset, run.about, run.path)


def check_same_checkpoint(plan: RunPlan, now: str, runs: Mapping[str, Run]) -> None:
    """See that finished runs began from the model that the checkpoint's file holds now.

    Args:
        plan: what is asked for.
        now: hash of the checkpoint's file.
        runs: by method. Those of earlier releases say of each method what it began with; one that trains its own start
            is not looked at there.

    Raises:
        CheckpointError: one began from another.
    """
    own = {method.name for method, _ in plan.methods if method.start is not None}
    for name, run in runs.items():
        began = {run.about.get("checkpoint_digest")} - {None}
        if not began and name not in own:
            began = {r.get("source_digest") for r in run.rounds(name) if r["round"] == -1} - {None}
        if began - {now}:
            raise CheckpointError(
                f"{run.path}: began from another model than {plan.config.checkpoint} holds now; put that one back, "
                "or name another --out"
            )


def warn_of_other_source_models(runs: Iterable[Run], reporter: RunReporter) -> None:
    """Say where runs that stand beside each other began from different source models."""
    first: dict[tuple[TrialKey, str], tuple[Run, str]] = {}
    for run in {run.path: run for run in runs}.values():
        for record in run.lines:
            if weights := record.get("source_weights"):
                # A method that trains its own start is beside none; all others begin with one model.
                parts = run.methods.get(record["method"], {}).get("components", ())
                own = record["method"] if any(part["kind"] == "central" for part in parts) else ""
                other, theirs = first.setdefault((TrialKey.of(record), own), (run, weights))
                if theirs != weights and other is not run:
                    reporter.warn(
                        f"{run.path} began from another source model than {other.path} (another kind of machine, "
                        "version of torch or checkpoint file), so what sets them apart is not their methods alone"
                    )
                    break


def dataset_name(config: RunConfig) -> str:
    """What tables and folders call the data: its name, or that of the folder of domains."""
    return data_name(config.dataset, config.data)


def plan_label(plan: RunPlan, name: str) -> str:
    """What tables call a method of a plan."""
    return next(method.label for method, _ in plan.methods if method.name == name)


def sort_methods(plan: RunPlan, out: Path) -> tuple[dict[str, Run], list[str]]:
    """Methods of a plan with the finished run that holds each, and the names of those that no run holds."""
    wanted = to_plain(plan.described()["methods"])
    there: dict[str, Run] = {}
    for run in filter(None, map(read_if_run, run_folders(out))):
        if is_reusable(run, plan.config):
            own = {name: fill_in_defaults(run.methods[name]) for name in wanted if name in run.methods}
            same = {name for name, said in own.items() if said | {"label": wanted[name]["label"]} == wanted[name]}
            there |= {name: run for name in same - set(other_starts(plan, run)) if name not in there}
    return there, [name for name in wanted if name not in there]


def other_starts(plan: RunPlan, run: Run) -> list[str]:
    """Methods whose own start was trained for another time: without a number of epochs for it, as long as clients train
    in all rounds.
    """
    own = [method.name for method, _ in plan.methods if method.start is not None]
    as_long = plan.config.central_training.epochs is not None or run.config.get("rounds") == plan.config.rounds
    return [] if as_long else own


def fill_in_defaults(method: Mapping[str, Any]) -> dict[str, Any]:
    """What a run says of a method, with the fields that its components have got since then at their defaults.

    A default keeps the numbers of the version before.
    """
    return {**method, "components": [_whole_component(part) for part in method["components"]]}


def _whole_component(said: Mapping[str, Any]) -> dict[str, Any]:
    found = registry_of(said["kind"])
    if said["name"] not in found.names():
        return dict(said)  # a plugin that is not there; the run stands for itself
    fields = found.get(said["name"]).model_fields
    return {**{name: to_plain(f.get_default(call_default_factory=True)) for name, f in fields.items()}, **said}


def is_reusable(run: Run, config: RunConfig) -> bool:
    """Whether a run ended, on this data and with these settings, with its last rounds on record; any methods."""
    same = comparable_settings(run.config) == comparable_settings(config.model_dump(mode="json"))
    try:
        return run.complete and same and run.whole
    except FedwcaError:
        return False  # damaged: it is run again, elsewhere


def comparable_settings(config: Any) -> dict[str, Any] | None:
    """What decides the numbers of every method of a run; None for values that are no configuration, or one of a plugin
    that is not installed.
    """
    try:
        values = type_components(without_idle_tables(validate(dict(config)))).model_dump(mode="json")
    except UsageError:
        return None
    shared = {kind: values["components"].get(kind, {}) for kind in ("dataset", "partition", "model")}
    return {**{key: value for key, value in values.items() if key not in OWN_TO_METHODS}, "shared": shared}


def place_run(request: RunRequest, methods: Sequence[str], out: Path, name: str) -> RunRequest:
    """A request for some of its methods, with a folder: one that holds this very run unfinished, in whatever order its
    methods are, or else the first free one.

    Args:
        request: of all methods.
        methods: names of those that are to be run.
        out: folder of run folders.
        name: of the run folder, but for a number behind it.
    """
    words = {parse_method(text).name: text for text in request.plan().config.baselines}

    def ordered(names: Iterable[str]) -> RunRequest:
        layer = {**request.layer, "baselines": [words[n] for n in names], "composed": False}
        return replace(request, layer=layer, checked=True)

    number = 1
    while True:
        path = out / (name if number == 1 else f"{name}-{number}")
        number += 1
        run = read_if_run(path)
        if run is None:
            if is_empty_folder(path):
                return replace(ordered(methods), out=path)
        elif not run.complete and run.methods.keys() == set(methods):
            with suppress(UsageError):  # of another version, or of a plugin that is not there
                if not differing_request(path, ordered(run.methods).plan()):
                    return replace(ordered(run.methods), out=path)


def start_or_resume(request: RunRequest, reporter: RunReporter) -> Run:
    """Run into ``request.out``; an unfinished run that is there goes on, to the same bits."""
    assert request.out is not None
    begun = (request.out / "config.json").is_file()
    if begun:
        reporter.note(f"{request.out}: holds the same run, unfinished; it goes on")
    return read_run(start_run(replace(request, reuse=begun), reporter).path)
