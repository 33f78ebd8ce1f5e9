"""Runs started from Python equal those of the command line."""

from __future__ import annotations

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import fedwca
from fedwca.aggregators.wca import WCA
from fedwca.cli import run
from fedwca.config.run_config import RunConfig
from fedwca.errors import FedwcaError, UsageError
from fedwca.objectives.shot import Shot
from fedwca.runs import execute_run as execute
from fedwca.runs.reporter import RunReporter
from tests.read_rounds import read_rounds

pytestmark = pytest.mark.filterwarnings("ignore:.*all clients are in one cluster")
OVERRIDES = {"source_training.epochs": 1, "model.bottleneck": 8}


@pytest.fixture
def settings(shades: Path) -> dict[str, Any]:
    small = {"clients": 1, "rounds": 1, "epochs": 1, "lr": 0.01, "batch_size": 16, "device": "cpu"}
    return {"data": shades, "baselines": ["fedavg"], "overrides": OVERRIDES, **small}


def test_a_run_is_that_of_the_command_line(
    settings: dict[str, Any], shades: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = fedwca.bench(out=tmp_path / "python", aggregator=WCA(ta=0.5), **settings)
    assert capsys.readouterr() == ("", "")
    words = "--baseline fedavg --aggregator wca:ta=0.5 --clients 1 --rounds 1 --epochs 1 --lr 0.01 --batch-size 16"
    sets = [word for key, value in OVERRIDES.items() for word in ("--set", f"{key}={value}")]
    line = ["bench", "--data", str(shades), *words.split(), *sets, "--device", "cpu", "--quiet"]
    assert run([*line, "--out", str(tmp_path / "line")]) == 0
    assert read_rounds(tmp_path / "python", without=["seconds"]) == read_rounds(tmp_path / "line", without=["seconds"])
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("python", "line")]
    assert configs[0] == configs[1]
    assert finished.path == tmp_path / "python"
    assert [record["method"] for record in finished.records()] == ["fedavg", "fedavg", "wca", "wca"]
    assert {row.name: row.mean for row in finished.table} == {
        name: entry["mean"] for name, entry in finished.summary["methods"].items()
    }
    assert len(repr(finished)) < 300
    assert "FedAvg" in repr(finished)
    resumed = fedwca.resume(finished.path)
    assert resumed.summary == finished.summary


def test_the_clients_of_the_first_trial_are_drawn_once(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        seeds.append(options["seed"])
        return original(*arguments, **options)

    dealing = importlib.import_module("fedwca.data.partition")
    original = dealing.partition
    monkeypatch.setattr(dealing, "partition", counted)
    fedwca.bench(out=tmp_path / "run", trials=2, composed=False, **settings)
    assert len(seeds) == len(set(seeds)) == 2


class Heard(RunReporter):
    """Records the events it is told of."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def planned(self, run: Any) -> None:
        self.told.append(f"planned {run.domain}")

    def interrupted(self, done: int, folder: Path) -> None:
        self.told.append(f"interrupted {done}")

    def resumed(self, done: int, rounds: int) -> None:
        self.told.append(f"resumed {done} of {rounds}")


def test_a_run_that_is_interrupted_goes_on(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TimeIsUp(KeyboardInterrupt):
        """An interruption of a caller's own class, which the caller gets back."""

    def stopped(*arguments: Any) -> Any:
        yield from list(original(*arguments))[:2]
        raise TimeIsUp

    original, heard = execute.run_bench, Heard()
    monkeypatch.setattr(execute, "run_bench", stopped)
    with pytest.raises(TimeIsUp, match=r"Stopped; 1 round is kept in .*; continue with: fedwca resume "):
        fedwca.bench(out=tmp_path / "run", reporter=heard, **settings)
    monkeypatch.undo()
    finished = fedwca.resume(tmp_path / "run", heard)
    assert heard.told == ["planned amber", "interrupted 1", "planned amber", "resumed 1 of 2"]
    assert finished.summary["complete"] is True


@pytest.mark.parametrize("own", [True, False])
def test_draws_that_no_seed_decides_are_said(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    original_call = Shot.__call__
    if own:
        monkeypatch.setattr(Shot, "__call__", lambda self, batch: original_call(self, batch) + 0 * torch.rand(()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fedwca.bench(out=tmp_path, engine="loop", **settings | {"rounds": 2, "composed": False})
    sentences = [str(warning.message) for warning in caught if "torch's own random numbers" in str(warning.message)]
    assert len(sentences) == int(own)
    assert all(sentence.startswith("FedAvg: a part of it draws") for sentence in sentences)


def test_methods_are_compared_and_runs_used_again(settings: dict[str, Any], tmp_path: Path) -> None:
    del settings["baselines"]
    comparison = fedwca.compare(
        ["source-only", "fedavg"], sources=["brass"], out=tmp_path / "all", keep="none", **settings
    )
    assert (comparison.sources, list(comparison.labels)) == (("brass",), ["source_only", "fedavg"])
    second = fedwca.compare(["fedavg"], sources=["brass"], out=tmp_path / "all", **settings)
    assert second.part("fedavg") == comparison.part("fedavg")
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["shades-brass"]
    assert not list((tmp_path / "all").rglob("*.safetensors"))
    page = fedwca.write_report([tmp_path / "all/shades-brass"], tmp_path / "page.md")
    assert "FedAvg" in page.read_text()


def test_mistakes_are_one_sentence(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no setting 'epoch'; did you mean 'epochs'"):
        fedwca.bench(epoch=1)
    with pytest.raises(UsageError, match="did you mean 'fedavg'"):
        fedwca.compare(["fedavgg"], out=tmp_path / "out", **settings)
    with pytest.raises(UsageError, match=r"methods needs a list, such as \['fedavg'\], not 'fedavg'"):
        fedwca.compare("fedavg", out=tmp_path / "out", **settings)
    with pytest.raises(UsageError, match="methods is empty; name at least one"):
        fedwca.compare([], out=tmp_path / "out", **settings)
    for runs, text in (([], "runs is empty"), (str(tmp_path), "runs needs a list"), (tmp_path, "runs needs a list")):
        with pytest.raises(UsageError, match=text):
            fedwca.write_report(runs, tmp_path / "page.md")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no such run"):
        fedwca.resume(tmp_path / "nowhere")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="bench runs in one process; under torchrun there is fedwca bench"):
        fedwca.bench(out=tmp_path / "out", **settings)


def test_a_configuration_shows_what_is_not_as_by_default() -> None:
    assert repr(RunConfig(rounds=3, aggregator="fedavg")) == "RunConfig(aggregator='fedavg', rounds=3)"


@pytest.mark.parametrize(("method", "words"), [("bench", "baselines"), ("bench", "loggers"), ("compare", "sources")])
def test_a_word_is_not_taken_for_a_list_of_letters(method: str, words: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {words: "local", "out": tmp_path / "run"}
    with pytest.raises(FedwcaError, match=rf"^{words}:? needs a list, such as \['local'\]"):
        fedwca.bench(**arguments) if method == "bench" else fedwca.compare(["fedavg"], **arguments)
    assert not (tmp_path / "run").exists()
