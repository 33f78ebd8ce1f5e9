"""When a run is the same as a requested one, and when a source model is the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedwca.config.resolve_config import resolve_plan
from fedwca.errors import CheckpointError, FedwcaError, UsageError
from fedwca.federated.source_model import StartModel
from fedwca.models.lenet import LeNet
from fedwca.results.saved_checkpoint import SavedCheckpoint
from fedwca.runs.resuming import resume_checks
from fedwca.runs.resuming.resume_checks import check_same_request, check_same_source_model, check_same_start_files
from fedwca.runs.resuming.reuse_runs import (
    comparable_settings,
    warn_of_changed_plugins,
    warn_of_other_environments,
    warn_of_other_source_models,
)
from fedwca.runs.resuming.start_files import digest_start_files


def test_another_setting_makes_another_run() -> None:
    current = resolve_plan({"target": "neon"}).config.model_dump(mode="json")
    assert comparable_settings(resolve_plan({"target": "neon"}).config.model_dump(mode="json")) == comparable_settings(
        current
    )
    changed = {**current, "training": {**current["training"], "lr": 0.123}}
    assert comparable_settings(changed) != comparable_settings(current)


def test_another_request_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = {"samples": (None, 80), "wca.aggregator.wca": (True, None), "composed": (True, False)}
    monkeypatch.setattr(resume_checks, "differing_request", lambda path, plan: differences)
    monkeypatch.setattr(resume_checks, "read_configuration", lambda path: {})
    monkeypatch.setattr(resume_checks, "with_added_settings", lambda metadata: metadata)
    said = "samples is not set there, 80 here, wca.aggregator.wca is set there, not set here, composed is true there"
    with pytest.raises(UsageError, match=re.escape(said)):
        check_same_request(Path("run"), resolve_plan({"target": "neon"}))


def test_a_model_that_another_kind_of_cpu_trained_is_another() -> None:
    model = StartModel(LeNet(bottleneck=4).build(3, seed=0), 90.0, "recipe")
    retrained = StartModel(LeNet(bottleneck=4).build(3, seed=1), 90.0, "recipe")
    assert model.weights == StartModel(LeNet(bottleneck=4).build(3, seed=0), 80.0, "elsewhere").weights
    saved = SavedCheckpoint(Path("a"), 0, {"source_digest": "recipe", "source_weights": model.weights})
    check_same_source_model(saved.path, saved.facts, model)
    with pytest.raises(CheckpointError, match=r"another kind of processor trained.* folder 'sources' of the cache"):
        check_same_source_model(saved.path, saved.facts, retrained)
    check_same_source_model(saved.path, {"source_digest": "recipe"}, retrained)  # of an earlier release
    with pytest.raises(CheckpointError, match="other torch, other images"):
        check_same_source_model(saved.path, saved.facts, replace(model, digest="another"))


@pytest.mark.parametrize(
    ("kind", "weights", "warned"),
    [
        ("aggregator", "00000001", False),
        ("aggregator", "00000002", True),  # from another kind of machine, version of torch or checkpoint file
        ("central", "00000002", False),  # a method that trains its own initial model
    ],
)
def test_runs_from_other_source_models_are_said(kind: str, weights: str, warned: bool) -> None:
    def run(name: str, kind: str, weights: str) -> Any:
        start = {"method": "m", "source_model": 0, "trial": 0, "round": -1, "source_weights": weights}
        methods = {"m": {"components": [{"kind": kind}]}}
        return SimpleNamespace(path=Path(name), methods=methods, lines=[start, {"round": 0}])

    messages: list[str] = []
    reporter = SimpleNamespace(warn=messages.append)
    runs: Any = [run("one", "aggregator", "00000001"), run("two", kind, weights)]
    warn_of_other_source_models(runs, reporter)  # type: ignore[arg-type]
    assert [text.startswith("two began from another source model than one") for text in messages] == [True] * warned


def test_runs_of_other_machines_and_versions_are_said() -> None:
    class Damaged:
        path = Path("damaged")

        @property
        def environment(self) -> Any:
            raise FedwcaError("environment.json is no JSON")

    def run(name: str, **environment: Any) -> Any:
        return SimpleNamespace(path=Path(name), environment={"cpu": "A", "cores": 2, **environment})

    messages: list[str] = []
    reporter: Any = SimpleNamespace(warn=messages.append)
    runs: Any = [Damaged(), run("one"), run("same", cores=8), run("two", cpu="B", versions={"torch": "2"})]
    warn_of_other_environments(runs, reporter)
    assert messages == ["two was made, unlike one, with cpu B, not cpu A: last digits may differ"]
    warn_of_other_environments([Damaged()], reporter)  # type: ignore[list-item]


def test_a_finished_run_of_a_plugin_that_was_edited_since_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedwca.runs.resuming.reuse_runs.plugin_code", lambda about: about)
    messages: list[str] = []
    reporter: Any = SimpleNamespace(warn=messages.append)
    runs: Any = [
        SimpleNamespace(path=Path(name), environment={} if then is None else {"plugin_code": {"lean": then}}, about=now)
        for name, then, now in (
            ("earlier release", None, {"lean": "bb"}),
            ("same", "bb", {"lean": "bb"}),
            ("not installed", "aa", {}),
            ("edited", "aa", {"lean": "bb"}),
        )
    ]
    warn_of_changed_plugins([*runs, *runs], reporter)
    assert messages == [
        "edited was made by other code of lean than is installed now; to run it again, remove it or name another --out"
    ]


@pytest.mark.parametrize("option", ["checkpoint", "weights"])
def test_a_file_that_a_run_began_from_must_be_the_same(tmp_path: Path, option: str) -> None:
    file = tmp_path / "own.pth"
    file.write_bytes(b"first")
    model = f"resnet18:weights={file}" if option == "weights" else "lenet"
    config = resolve_plan({"model": model, **({} if option == "weights" else {"checkpoint": str(file)})}).config
    metadata = digest_start_files(config)
    assert list(metadata) == [f"{option}_digest"]
    check_same_start_files(tmp_path, metadata, config)
    file.write_bytes(b"second")
    check_same_start_files(tmp_path, {}, config)  # of an earlier release
    with pytest.raises(CheckpointError, match=r"began from another model than .* holds now; put"):
        check_same_start_files(tmp_path, metadata, config)
    file.unlink()
    check_same_start_files(tmp_path, metadata, config)  # reading it says that it is missing
