"""Which part of the package may import which; imports are read from the source code."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fedwca
from fedwca.data.metrics import Metrics

ROOT = Path(fedwca.__file__).parent
COMPONENTS = (
    *("aggregators", "clusterers", "pseudo_labelers", "objectives", "adaptations", "centrals"),
    *("models", "datasets", "partitions", "loggers"),
)
BASE = {"component", "describe_problems", "errors", "registry", "user_values", "warn_caller"}
VALUES = {*BASE, "core", "functional"}
ENGINES = {*VALUES, "data", "engine", "federated"}
RUNS = {*ENGINES, *COMPONENTS, "_version", "config", "results", "runs"}
ALLOWED: dict[str, set[str]] = {
    "_version": set(),
    "_deprecated": set(),
    "errors": set(),
    "describe_problems": set(),
    "user_values": set(),
    "warn_caller": set(),
    "component_class_checks": {"errors", "user_values"},
    "component": {"_deprecated", "component_class_checks", "errors", "user_values"},
    "registry": {"component", "component_class_checks", "describe_problems", "errors"},
    "functional": {"errors", "_deprecated", "warn_caller"},
    "core": {*BASE, "functional", "_deprecated"},
    **dict.fromkeys(COMPONENTS, VALUES),
    "datasets": {*BASE, "core", "data"},
    "partitions": {*BASE, "core", "data", "functional"},
    "loggers": {*BASE, "core"},
    "data": {*BASE, "core", "functional"},
    "engine": {*VALUES, "_version", "data"},
    "federated": {*VALUES, "_deprecated", "data", "engine"},
    "results": {*BASE, "core", "data"},
    "config": {*ENGINES, *COMPONENTS},
    "runs": RUNS - {"runs"},
    "download": {*BASE, "_version", "core", "data", "datasets"},
    "newcomers": RUNS,
    "search": RUNS,
    "reproduce": RUNS,
    "export": {*RUNS, "newcomers"},
    "deploy": {*RUNS, "_deprecated", "export"},
    "cli": {*RUNS, "_deprecated", "deploy", "download", "export", "newcomers", "reproduce", "search"},
    "__init__": {*ENGINES, "_deprecated", "_version", "datasets", "results", "runs"},
    "__main__": {"cli"},
}
"""What each part of the package may import from the other parts, from the lowest layer to the highest."""


@cache
def modules() -> list[tuple[str, str, ast.Module]]:
    """(part, dotted name, syntax tree) of every module."""
    files = {file.relative_to(ROOT).with_suffix("").parts: file for file in sorted(ROOT.rglob("*.py"))}
    return [
        (parts[0], ".".join(("fedwca", *parts)).removesuffix(".__init__"), ast.parse(file.read_text()))
        for parts, file in files.items()
    ]


# A published variant may extend the component it varies.
EXTENDED = {"fedwca.aggregators.revised_wca"}
FLOWER = "fedwca.deploy.flower"


def imported(tree: ast.Module) -> Iterator[str]:
    """Dotted names of all that a module imports, anywhere in it, also for type checking only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_files(tree: ast.Module, files: set[str]) -> set[str]:
    """The modules among ``files`` that a module imports, anywhere in it, also for type checking only."""
    imported_names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported_names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            full_names = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            imported_names |= {full if full in files else str(node.module) for full in full_names.values()}
    return imported_names & files


def test_no_file_imports_itself_through_others() -> None:
    files = {name for _, name, _ in modules()}
    graph = {name: imported_files(tree, files) for _, name, tree in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" ← ".join(error.args[1]))


# Modules that may ask the metrics for labels that clients do not have: to deal them out, for figures, and for oracles.
HIDDEN = {
    "test_truth": {"fedwca.runs.final_model_predictions"},
    "labels_at": {"fedwca.data.labelled_clients"},
    "training_truth": {"fedwca.runs.central_models"},
    "domain_labels": {"fedwca.runs.records.round_diagnostics", "fedwca.runs.run_rounds"},
}
# Modules that may ask the metrics for what they measure by labels and domains: to report it, for estimates of memory,
# and for central methods.
MEASURED = {
    "domains": {
        *("fedwca.data.federation", "fedwca.data.partition", "fedwca.runs.central_models"),
        *("fedwca.runs.final_model_predictions", "fedwca.runs.resources.memory_estimate", "fedwca.runs.run_rounds"),
    },
    "accuracy": {
        *("fedwca.export.delivered_accuracy", "fedwca.runs.records.measure_delivered", "fedwca.runs.run_rounds"),
    },
    "by_domain": {"fedwca.deploy.make_deployment"},
    "class_counts": {"fedwca.runs.run_trials_and_methods"},
    "clustering": {"fedwca.runs.records.round_diagnostics", "fedwca.runs.records.round_record"},
    "calibration_error": {"fedwca.runs.records.round_record"},
    "confusion": {"fedwca.runs.records.round_record"},
    "pseudo_label_accuracy": {"fedwca.runs.records.round_record"},
    "pseudo_label_counts": {"fedwca.runs.records.round_record"},
}
UNHIDDEN = {"counted", "joined", "test_images"}
"""What metrics give without reading a label or a domain."""


def test_metrics_are_asked_where_they_may_be() -> None:
    methods = {name for name in vars(Metrics) if not name.startswith("_")}
    assert methods == (MEASURED.keys() | HIDDEN.keys() | UNHIDDEN) - {"labels_at", "counted"}
    readers: dict[str, set[str]] = {}
    for _, name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] == "metrics":
                readers.setdefault(node.attr, set()).add(name)
    assert {attribute: names for attribute, names in readers.items() if attribute in MEASURED} == MEASURED
    assert readers.keys() <= MEASURED.keys() | HIDDEN.keys() | UNHIDDEN


def test_hidden_labels_are_asked_for_where_they_may_be() -> None:
    callers: dict[str, set[str]] = {}
    for _, name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in HIDDEN:
                callers.setdefault(node.func.attr, set()).add(name)
            if isinstance(node, ast.Attribute) and node.attr in ("_train_labels", "_test_labels"):
                assert name == "fedwca.data.metrics"
    assert callers == HIDDEN


def test_imports_point_downwards() -> None:
    for part, name, tree in modules():
        parts = {full.split(".")[1] for full in imported(tree) if full.startswith("fedwca.")}
        parts &= set(ALLOWED)
        assert parts - ALLOWED[part] - {part} == set(), name


@pytest.mark.parametrize("kind", COMPONENTS)
def test_components_do_not_know_one_another(kind: str) -> None:
    for part, name, tree in modules():
        if part != kind or name in EXTENDED:
            continue
        siblings = {
            full
            for full in imported(tree)
            if full.startswith(f"fedwca.{kind}.") and full != name and not full.split(".")[2].startswith("_")
        }
        # `register` and the registry itself are in the package's __init__; every other file is a component.
        files = {file.stem for file in (ROOT / kind).glob("[!_]*.py")}
        assert {full for full in siblings if full.split(".")[2] in files} == set(), name


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    for part, name, tree in modules():
        libraries = {
            full.split(".")[0]
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for full in imported(ast.Module([node], []))
        }
        assert not libraries & {"matplotlib", "sklearn"} or name in FIGURES, name
        if part in ("component", "registry", "errors", "cli"):
            assert not libraries & {"torch", "numpy"}, name


FIGURES = {"fedwca.results.pictures.notebook_figure"}
"""Defines a subclass of a class of matplotlib; only code that draws imports it."""
CONSOLE = {"print", "echo", "secho", "Console", "input"}
WRITES = {"write_text", "write_bytes", "mkdir", "unlink", "rmdir", "replace", "savefig", "save_file", "fsync", "rename"}
ASKS_THE_SYSTEM = {"fedwca.engine.memory"}
"""Reads the system's files on free memory, but no file of a user."""
READS = {"read_text", "read_bytes", "load_file", "iterdir", "glob", "rglob", "open"}


def called(tree: ast.Module) -> set[str]:
    """Names of all functions and methods that a module calls."""
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {f.id if isinstance(f, ast.Name) else f.attr for f in functions if isinstance(f, ast.Name | ast.Attribute)}


MAY_WRITE = {"cli", "core", "deploy", "download", "results", "data", "federated", "export"}
MAY_READ = {*MAY_WRITE, "datasets", "config", "runs", "search", "reproduce"}


def test_only_the_command_line_talks_and_only_keepers_write() -> None:
    for part, name, tree in modules():
        names = called(tree)
        if part != "cli":
            assert not names & CONSOLE, name
        if part not in MAY_WRITE:
            # ``replace`` is also a function of dataclasses and a method of str.
            assert not names & (WRITES - {"replace"}), name
        if part not in MAY_READ:
            assert not names & (READS if name not in ASKS_THE_SYSTEM else READS - {"read_text"}), name


@pytest.mark.parametrize("flower", [False, True])
def test_public_names_and_module_docstrings_exist(flower: bool) -> None:
    if flower:
        pytest.importorskip("flwr")
    for _, name, _ in modules():
        if name.startswith(FLOWER) != flower or name == "fedwca.__main__":
            continue
        module = importlib.import_module(name)
        assert [public for public in getattr(module, "__all__", ()) if not hasattr(module, public)] == [], name
        assert module.__doc__, name
