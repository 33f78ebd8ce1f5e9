"""Collects the runs that a table needs: finished ones are reused, unfinished ones resumed, missing ones run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedwca.config.added_fields import with_added_fields
from fedwca.config.method_spec import PARTS, parse_method
from fedwca.config.resolve_config import RunPlan, type_components
from fedwca.config.run_config import RunConfig, validate
from fedwca.core.plain_values import to_plain
from fedwca.core.printable import printable
from fedwca.errors import CheckpointError, DatasetMissing, FedwcaError, UsageError
from fedwca.results.describe_run import data_and_domain, data_name, is_central, trained_methods
from fedwca.results.environment import describe_other_environment, plugin_code
from fedwca.results.find_runs import run_folders
from fedwca.results.read_run import Run, read_if_run, read_run
from fedwca.results.settings_without_effect import SAME_NUMBERS
from fedwca.results.table_rows import Row
from fedwca.results.trial_key import TrialKey
from fedwca.results.write_run import is_empty_folder
from fedwca.runs.load_data import load
from fedwca.runs.reporter import RunReporter
from fedwca.runs.resuming.resume_checks import differing_request
from fedwca.runs.resuming.start_files import digest_start_files, start_files
from fedwca.runs.run_images import check_same_data, check_same_digest
from fedwca.runs.run_request import RunRequest
from fedwca.runs.start_run import start_run

OWN_TO_METHODS = {
    *(*PARTS, "components", "methods", "baselines", "composed", "name", "rounds", *SAME_NUMBERS),
}
"""Configuration fields that are compared per method instead, or that do not change results."""


@dataclass(frozen=True)
class CollectedRuns:
    """Everything a table needs for one source or target domain."""

    config: RunConfig
    table: list[Row]
    """Rows in the requested order of methods."""
    runs: dict[str, Run]
    """Run by name of the method that it holds."""

    @property
    def trained(self) -> set[str]:
        """Methods that train."""
        return trained_methods({name: run.methods[name] for name, run in self.runs.items()})


def collect_runs(request: RunRequest, out: Path, reporter: RunReporter) -> CollectedRuns:
    """Runs for one source or target domain: finished ones in ``out`` are reused, missing methods are run below it.

    Args:
        request: names the domain, and lists its methods as baselines without a composed one.
        out: folder of run folders.
        reporter: receives notes on reused and resumed runs, progress and warnings.

    Raises:
        DataError: finished runs were made on images that differ from each other's or from the current ones.
        FedwcaError: a missing method cannot be run.
    """
    plan = request.plan()
    finished_runs, missing = sort_methods(plan, out)
    check_same_data(finished_runs.values())
    dataset_text = data_and_domain(plan.config.model_dump())
    if finished_runs:  # their results may be shown beside new runs on the current images
        try:
            check_same_images(plan.config, finished_runs.values())
        except DatasetMissing:
            if missing:
                raise
            reporter.warn(
                f"{dataset_text}: the images are not there, so it is not known whether they are still the same"
            )
    for key, file in start_files(plan.config).items() if finished_runs else ():
        if (digest := digest_start_files(plan.config).get(key)) is not None:
            check_same_start(plan, key, file, digest, finished_runs)
        elif not missing:  # otherwise running the missing methods raises an error
            reporter.warn(f"{dataset_text}: {file} is not there, so it is not known whether it is still the same")
    warn_of_changed_plugins(finished_runs.values(), reporter)
    for path in dict.fromkeys(run.path for run in finished_runs.values()):
        names = {name for name, run in finished_runs.items() if run.path == path}
        labels = [method.label for method, _ in plan.methods if method.name in names]
        reporter.note(
            f"{dataset_text}: {', '.join(labels)} from {path}, finished with the same configuration, not run again"
        )
    if missing:
        missing_request = place_run(
            request, missing, out, f"{data_name(plan.config.model_dump())}-{plan.domain or plan.config.partition}"
        )
        finished_runs |= dict.fromkeys(missing, start_or_resume(missing_request, reporter))
    warn_of_other_source_models(finished_runs.values(), reporter)
    tables = {run.path: {row.name: row for row in run.table} for run in finished_runs.values()}
    # A method's label may differ in a run that had other methods.
    rows = [
        replace(tables[finished_runs[method.name].path][method.name], label=method.label) for method, _ in plan.methods
    ]
    return CollectedRuns(plan.config, rows, finished_runs)


def check_same_images(config: RunConfig, runs: Iterable[Run]) -> None:
    """Check that finished runs were made on the current images.

    Raises:
        DataError: a run was made on other images.
    """
    dataset, _ = load(config)
    for run in runs:
        check_same_digest(dataset, run.about, run.path)


def check_same_start(plan: RunPlan, key: str, file: Path, digest: str, runs: Mapping[str, Run]) -> None:
    """Check that finished runs began from the model that a file now holds.

    Runs of earlier releases store the digest of a checkpoint's model in each method's first record instead, where
    methods that train their own start model are not checked, and none of a file of weights.

    Args:
        plan: the requested run.
        key: of the file, as in `start_files`.
        file: it.
        digest: its hash.
        runs: finished run by method.

    Raises:
        CheckpointError: a run began from another model.
    """
    own_start_methods = {method.name for method, _ in plan.methods if method.central is not None}
    for name, run in runs.items():
        digests = {run.about.get(key)} - {None}
        if not digests and key == "checkpoint_digest" and name not in own_start_methods:
            digests = {record.get("source_digest") for record in run.rounds(name) if record["round"] == -1} - {None}
        if digests - {digest}:
            raise CheckpointError(
                f"{run.path}: began from another model than {file} holds now; put that one back, or name another --out"
            )


def warn_of_other_source_models(runs: Iterable[Run], reporter: RunReporter) -> None:
    """Warn if runs of one table began from different source models."""
    first_runs: dict[tuple[TrialKey, str], tuple[Run, str]] = {}
    for run in {run.path: run for run in runs}.values():
        for record in run.lines:
            if weights := record.get("source_weights"):
                # All methods share one start model, except those that train their own.
                own_start = record["method"] if is_central(run.methods.get(record["method"], {})) else ""
                first_run, first_weights = first_runs.setdefault((TrialKey.of(record), own_start), (run, weights))
                if first_weights != weights and first_run is not run:
                    reporter.warn(
                        f"{run.path} began from another source model than {first_run.path} (another kind of machine, "
                        "version of torch or checkpoint file), so what sets them apart is not their methods alone"
                    )
                    break


def warn_of_changed_plugins(runs: Iterable[Run], reporter: RunReporter) -> None:
    """Warn if finished runs have components of plugins whose code has changed since."""
    for run in {run.path: run for run in runs}.values():
        stored: Mapping[str, str] = {}
        with suppress(FedwcaError):  # damaged, which changes no number
            stored = run.environment.get("plugin_code", {})
        current = plugin_code(run.about) if stored else {}  # it looks through all installed packages
        if changed := [name for name, code in stored.items() if current.get(name, code) != code]:
            reporter.warn(
                f"{run.path} was made by other code of {printable(' and '.join(changed))} than is installed now; to "
                "run it again, remove it or name another --out"
            )


def warn_of_other_environments(runs: Iterable[Run], reporter: RunReporter) -> None:
    """Warn if runs of one table were made on other hardware, or by other versions, than the first of them."""
    environments: dict[Path, Mapping[str, Any]] = {}
    for run in runs:
        with suppress(FedwcaError):  # damaged, which changes no number
            environments[run.path] = run.environment
    if not environments:
        return
    first, *others = environments
    for path in others:
        if differences := describe_other_environment(environments[first], environments[path]):
            reporter.warn(f"{path} was made, unlike {first}, {differences}")


def sort_methods(plan: RunPlan, out: Path) -> tuple[dict[str, Run], list[str]]:
    """A plan's methods that a finished run in ``out`` holds, with that run, and the names of those that none holds."""
    requested = to_plain(plan.described()["methods"])
    finished: dict[str, Run] = {}
    for run in filter(None, map(read_if_run, run_folders(out))):
        if is_reusable(run, plan.config):
            stored = with_added_fields({name: run.methods[name] for name in requested if name in run.methods})
            matching = {
                name for name, entry in stored.items() if entry | {"label": requested[name]["label"]} == requested[name]
            }
            finished |= {name: run for name in matching - set(other_starts(plan, run)) if name not in finished}
    return finished, [name for name in requested if name not in finished]


def other_starts(plan: RunPlan, run: Run) -> list[str]:
    """Methods whose own start model was trained for a different length in a finished run.

    If the number of epochs is not set, central training lasts as long as the clients train in all rounds.
    """
    own_start_methods = [method.name for method, _ in plan.methods if method.central is not None]
    same_length = plan.config.central_training.epochs is not None or run.config.get("rounds") == plan.config.rounds
    return [] if same_length else own_start_methods


def is_reusable(run: Run, config: RunConfig) -> bool:
    """Whether a run is complete, with all its records, and has these data and settings; methods are not compared."""
    same_settings = comparable_settings(run.config) == comparable_settings(config.model_dump(mode="json"))
    try:
        return run.complete and same_settings and run.has_all_rounds
    except FedwcaError:
        return False  # damaged: its methods are run again in another folder


def comparable_settings(config: Any) -> dict[str, Any] | None:
    """The settings that determine the results of all methods of a run.

    None if the values are not a valid configuration, or need a plugin that is not installed.
    """
    try:
        values = type_components(validate(dict(config))).model_dump(mode="json")
    except UsageError:
        return None
    shared = {kind: values["components"].get(kind, {}) for kind in ("dataset", "partition", "model")}
    return {**{key: value for key, value in values.items() if key not in OWN_TO_METHODS}, "shared": shared}


def place_run(request: RunRequest, methods: Sequence[str], out: Path, name: str) -> RunRequest:
    """The request for some of its methods, with a run folder.

    The folder is one that holds the same run unfinished, with its methods in any order, else the first free one.

    Args:
        request: the request for all methods.
        methods: names of the methods to be run.
        out: folder of run folders.
        name: name of the run folder, to which a number may be appended.
    """
    spec_by_name = {parse_method(text).name: text for text in request.plan().config.baselines}

    def ordered(names: Iterable[str]) -> RunRequest:
        layer = {**request.layer, "baselines": [spec_by_name[method] for method in names], "composed": False}
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
            with suppress(UsageError):  # a run of another version, or of a plugin that is not installed
                if not differing_request(path, ordered(run.methods).plan()):
                    return replace(ordered(run.methods), out=path)


def start_or_resume(request: RunRequest, reporter: RunReporter) -> Run:
    """Run into ``request.out``, or resume the unfinished run there, with bitwise the same results."""
    assert request.out is not None
    begun = (request.out / "config.json").is_file()
    if begun:
        reporter.note(f"{request.out}: holds the same run, unfinished; it goes on")
    return read_run(start_run(replace(request, reuse=begun), reporter).path)
