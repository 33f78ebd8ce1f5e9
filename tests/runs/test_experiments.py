"""Runs started from Python equal those of the command line."""

from __future__ import annotations

import importlib
import json
import math
import random
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedwca
from fedwca.adaptations.entropy import Entropy
from fedwca.aggregators import aggregators
from fedwca.aggregators.fedamp import FedAMP
from fedwca.aggregators.local import Local
from fedwca.aggregators.one_hot import OneHot
from fedwca.aggregators.wca import WCA
from fedwca.centrals.pooled import Pooled
from fedwca.cli import run
from fedwca.clusterers import clusterers
from fedwca.config.run_config import RunConfig
from fedwca.core.interfaces import Aggregator, Clusterer
from fedwca.core.messages import Signatures, Simplex
from fedwca.datasets.folder import Folder
from fedwca.deploy.deployable_checks import check_deployable
from fedwca.errors import DataError, FedwcaError, UsageError
from fedwca.federated.method import Method
from fedwca.functional import Metric
from fedwca.models.lenet import LeNet
from fedwca.objectives.shot import Shot
from fedwca.partitions import partitions
from fedwca.partitions.domains import Domains
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.runs import check_components
from fedwca.runs import execute_run as execute
from fedwca.runs.check_components import dry_run_components
from fedwca.runs.records.round_record import starts_from_own
from fedwca.runs.reporter import RunReporter
from tests.conftest import SMALL_MODEL
from tests.read_rounds import read_rounds

pytestmark = pytest.mark.filterwarnings("ignore:.*all clients are in one cluster")
OVERRIDES = {"source_training.epochs": 1}


@pytest.fixture
def settings(shades: Path) -> dict[str, Any]:
    small = {"clients": 1, "rounds": 1, "epochs": 1, "lr": 0.01, "batch_size": 16, "device": "cpu"}
    small["model"] = SMALL_MODEL
    return {"data": shades, "baselines": ["fedavg"], "overrides": OVERRIDES, **small}


def test_a_run_is_that_of_the_command_line(
    settings: dict[str, Any], shades: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = fedwca.bench(out=tmp_path / "python", aggregator=WCA(ta=0.5), **settings)
    assert capsys.readouterr() == ("", "")
    words = "--baseline fedavg --aggregator wca:ta=0.5 --clients 1 --rounds 1 --epochs 1 --lr 0.01 --batch-size 16"
    sets = [word for key, value in OVERRIDES.items() for word in ("--set", f"{key}={value}")]
    line = ["bench", "--data", str(shades), "--model", SMALL_MODEL, *words.split(), *sets, "--device", "cpu", "--quiet"]
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


DRAWS = {"torch": lambda: float(torch.rand(())), "numpy": np.random.rand, "Python": random.random}


@pytest.mark.parametrize("own", [*DRAWS, None])
def test_draws_that_no_seed_decides_are_said(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    original_call = Shot.__call__
    if own:
        monkeypatch.setattr(Shot, "__call__", lambda self, batch: original_call(self, batch) + 0 * DRAWS[own]())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fedwca.bench(out=tmp_path, engine="loop", **settings | {"rounds": 2, "composed": False})
    sentences = [str(warning.message) for warning in caught if "global random numbers" in str(warning.message)]
    assert len(sentences) == int(own is not None)
    assert all(sentence.startswith("FedAvg: a part of it draws") for sentence in sentences)


def test_a_partition_that_draws_by_itself_or_gives_nothing_is_said(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_call = Domains.__call__
    monkeypatch.setattr(Domains, "__call__", lambda self, *given: (np.random.rand(), original_call(self, *given))[1])
    with pytest.warns(UserWarning, match="partition 'domains' draws from the global random numbers") as caught:
        fedwca.bench(out=tmp_path / "drawn", **settings | {"composed": False, "trials": 2})
    assert len([warning for warning in caught if "global random numbers" in str(warning.message)]) == 1
    monkeypatch.setattr(Domains, "__call__", lambda self, *given: None)
    with pytest.raises(UsageError, match="partition 'domains' gave nothing; right is a Federation"):
        fedwca.bench(out=tmp_path / "nothing", **settings)


def test_an_exception_of_a_plugin_is_a_fedwca_error(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Domains):
        """Fails when it is called."""

        def __call__(self, *given: Any) -> Any:
            """Divide by zero."""
            return 1 / 0

    monkeypatch.setitem(partitions._classes, "failing", Failing)
    monkeypatch.setattr(Failing, "name", "failing")
    said = r"partition 'failing' \(test_experiments.py:\d+\) raised ZeroDivisionError: division by zero$"
    with pytest.raises(FedwcaError, match=said) as caught:
        fedwca.bench(out=tmp_path / "run", partition="failing", **settings)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(FedwcaError, match=said):
        fedwca.compare(["fedavg"], out=tmp_path / "runs", partition="failing", **settings | {"baselines": []})


def test_a_partition_without_a_source_model_says_what_its_clients_start_from(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Whole(Domains):
        """As a partition that leaves `domain_role` as it is."""

        domain_role = None

    monkeypatch.setitem(partitions._classes, "whole", Whole)
    monkeypatch.setattr(Whole, "name", "whole")
    said = r"partition 'whole' names no domain to train a source model on; give it a domain_role"
    with pytest.raises(UsageError, match=said):
        fedwca.bench(out=tmp_path / "run", partition="whole", **settings | {"source": None})


def test_a_central_method_that_draws_by_itself_is_said(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_call = Pooled.__call__
    monkeypatch.setattr(Pooled, "__call__", lambda self, step: original_call(self, step) + 0 * np.random.rand())
    overrides = {"central_training.epochs": 1, "central_training.lr": 0.0123}
    settings |= {"target": "coral", "baselines": ["pooled"], "overrides": overrides, "composed": False}
    with pytest.warns(UserWarning, match="central method 'pooled' draws from the global random numbers"):
        fedwca.bench(out=tmp_path, **settings)


def test_a_data_set_that_draws_by_itself_is_said(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_load = Folder.load
    monkeypatch.setattr(Folder, "load", lambda self, size: (np.random.rand(), original_load(self, size))[1])
    with pytest.warns(UserWarning, match=r"data set 'folder' draws from .* generator of its own"):
        fedwca.bench(out=tmp_path, **settings | {"composed": False})


@pytest.mark.parametrize("baseline", ["fedavg", "source_only"])  # after each round, and before the first one
def test_an_adaptation_that_draws_by_itself_is_said(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baseline: str
) -> None:
    original_loss = Entropy.loss
    monkeypatch.setattr(Entropy, "loss", lambda self, *given: original_loss(self, *given) + 0 * np.random.rand())
    settings |= {"baselines": [f"{baseline}/adaptation=entropy:lr=0.01"], "trials": 2}
    with pytest.warns(UserWarning, match=": a part of it draws from the global random numbers") as caught:
        fedwca.bench(out=tmp_path, **settings | {"composed": False, "engine": "loop"})
    assert len([warning for warning in caught if "global random numbers" in str(warning.message)]) == 1


def test_a_data_set_is_loaded_or_refused(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "load", lambda self, size: [])
    with pytest.raises(DataError, match="data set 'folder': load gave a list; right is a FederatedDataset"):
        fedwca.bench(out=tmp_path / "run", **settings)


class Reporting(Aggregator):
    """Reports under a name that records use for something else."""

    reports = {"trust": Simplex(2)}


class Labelling(Aggregator):
    """Reports under a name that uploads use for something else."""

    reports = {"label": Simplex(2)}


class Unlabeled(Clusterer):
    """Gives no groups, or asks for what it may not see."""

    asks: bool = False

    def __call__(self, signatures: Signatures) -> Tensor:
        """Not the groups."""
        return signatures.domains() if self.asks else torch.zeros(2)


class Known(Clusterer):
    """Knows the groups of this run's clients."""

    groups: tuple[int, ...] = (0, 1)
    layer: int = 1

    def __call__(self, signatures: Signatures) -> Tensor:
        """These groups."""
        signatures.layer_weights(self.layer)
        return torch.tensor(self.groups)


class Comparing(Clusterer):
    """Gives one group, and has a fault that a simulation would not meet."""

    wrong: str = ""

    def __call__(self, signatures: Signatures) -> Tensor:
        """One group."""
        if self.wrong == "moments":
            signatures.moments("all")
        return torch.zeros(signatures.clients, dtype=torch.int64)

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """First layers, or their number alone."""
        return signatures.layer_weights(1)[:, 0] if self.wrong == "vectors" else None  # type: ignore[return-value]


def test_a_clusterer_may_know_how_many_clients_there_are(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(clusterers._classes, "known", Known)
    clusterers("Known")(Known)
    method = {"baselines": [], "aggregator": "one_hot", "clusterer": Known()}
    finished = fedwca.bench(out=tmp_path / "run", **settings | method)
    assert finished.records()[1]["clustering"]["sizes"] == [1, 1]
    composed = Method("own", "Own", OneHot(), Argmax(), (Shot(),), clusterer=Known())
    check_deployable(composed, 1, LeNet().build(3), clients=2)


def test_where_there_is_no_memory_for_all_clients_fewer_are_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    network = LeNet().build(3)

    def check(layer: int = 1, clients: int = 6) -> None:
        composed = Method("own", "Own", OneHot(), Argmax(), (Shot(),), Known(groups=(0, 1, 1, 0, 0, 1), layer=layer))
        dry_run_components(RunConfig(device="cpu"), [(composed, 1)], network, ("a", "b", "c"), clients)

    check()
    with pytest.raises(FedwcaError, match="right would be 5 int64 labels"):
        check(clients=5)
    monkeypatch.setattr(check_components, "free_bytes", lambda device: 0)
    check(clients=5)
    with pytest.raises(UsageError, match="clusterer 'known': signature 9: this model has"):
        check(layer=9)


def test_answers_that_can_be_checked_before_training_are(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, cls in (
        (aggregators, Reporting),
        (aggregators, Labelling),
        (clusterers, Unlabeled),
        (clusterers, Comparing),
    ):
        monkeypatch.setitem(kind._classes, cls.__name__.lower(), cls)  # registered for this test alone
        kind(cls.__name__)(cls)
    settings |= {"baselines": []}
    for changes, said in (
        ({"clusterer": Unlabeled()}, r"clusterer 'unlabeled' gave torch.float32 of shape \(2,\); right would be 2 "),
        ({"clusterer": Unlabeled(asks=True)}, "clusterer 'unlabeled': true domains are only shown to a clusterer that"),
        (
            {"clusterer": Comparing(wrong="vectors")},
            "clusterer 'comparing': client_vectors gave torch.float32 of shape",
        ),
        (
            {"clusterer": Comparing(wrong="moments")},
            "clusterer 'comparing' reads moments of 'all', and its norm_layers gives None; right is 'all'",
        ),
        (
            {"aggregator": Reporting()},
            "aggregator 'reporting': a record or an upload has another field 'trust'; rename the report",
        ),
        (
            {"aggregator": Labelling()},
            "aggregator 'labelling': a record or an upload has another field 'label'; rename the report",
        ),
    ):
        with pytest.raises(FedwcaError, match=said):
            fedwca.bench(out=tmp_path / "run", **settings | changes)


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
    by_format = [fedwca.write_report([tmp_path / "all/shades-brass"], form=form) for form in ("md", "latex", "html")]  # type: ignore[arg-type]
    assert [path.name for path in by_format] == ["report.md", "report.tex", "report.html"]
    assert by_format[0].read_text() == page.read_text()
    with pytest.raises(UsageError, match=r"page.docx: ends in .docx; right is .html, .htm, .md, .tex"):
        fedwca.write_report([tmp_path / "all/shades-brass"], tmp_path / "page.docx")
    with pytest.raises(UsageError, match="form 'pdf': takes html, md, latex"):
        fedwca.write_report([tmp_path / "all/shades-brass"], form="pdf")  # type: ignore[arg-type]


def test_mistakes_are_one_sentence(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no setting 'epoch'; did you mean 'epochs'"):
        fedwca.bench(epoch=1)
    with pytest.raises(UsageError, match="did you mean 'fedavg'"):
        fedwca.compare(["fedavgg"], out=tmp_path / "out", **{**settings, "baselines": []})
    with pytest.raises(UsageError, match=r"methods needs a list, such as \['fedavg'\], not 'fedavg'"):
        fedwca.compare("fedavg", out=tmp_path / "out", **settings)
    with pytest.raises(UsageError, match="methods is empty; name at least one"):
        fedwca.compare([], out=tmp_path / "out", **settings)
    for layer in ({"baselines": ["local"]}, {"composed": True}, {"name": "mine"}):
        with pytest.raises(UsageError, match=r"are named by methods|name: methods say their parts"):
            fedwca.compare(["fedavg"], out=tmp_path / "out", **{**settings, **layer})
    for runs, text in (([], "runs is empty"), (str(tmp_path), "runs needs a list"), (tmp_path, "runs needs a list")):
        with pytest.raises(UsageError, match=text):
            fedwca.write_report(runs, tmp_path / "page.md")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="resume=True needs out"):
        fedwca.bench(resume=True, **settings)
    with pytest.raises(UsageError, match="no such run"):
        fedwca.resume(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"^a run is named by its folder, or by its name in runs/, not by dict$"):
        fedwca.write_report([{"path": tmp_path}])  # type: ignore[list-item]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="bench runs in one process; under torchrun there is fedwca bench"):
        fedwca.bench(out=tmp_path / "out", **settings)


def test_a_configuration_shows_what_is_not_as_by_default() -> None:
    assert repr(RunConfig(rounds=3, aggregator="fedavg")) == "RunConfig(aggregator='fedavg', rounds=3)"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"overrides": [("training.lr", 0.1)]}, "overrides needs a table of dotted keys, such as {'training.lr': 0.1}"),
        ({"overrides": {1: 2}}, "overrides needs a table of dotted keys"),
        ({"preset": None}, "preset needs a name, such as 'paper', not None"),
        ({"config": {"rounds": 3}}, "config needs a path, not {'rounds': 3}"),
        ({"out": 3}, "out needs a path, not 3"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_of_another_type_get_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}"):
        fedwca.bench(**arguments)
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}"):
        fedwca.compare(["fedavg"], **arguments)


@pytest.mark.parametrize(("method", "words"), [("bench", "baselines"), ("bench", "loggers"), ("compare", "sources")])
def test_a_word_is_not_taken_for_a_list_of_letters(method: str, words: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {words: "local", "out": tmp_path / "run"}
    with pytest.raises(FedwcaError, match=rf"^{words}:? needs a list, such as \['local'\]"):
        fedwca.bench(**arguments) if method == "bench" else fedwca.compare(["fedavg"], **arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("aggregator", "weights", "own"),
    [
        (Local(), torch.eye(3), True),
        (Local(), torch.tensor([[1.0, 0, 0], [math.nan] * 3, [0, 0, 1]]), True),  # the second was absent
        (Local(), torch.ones(3, 1), False),  # round 0
        (FedAMP(), torch.tensor([[0.5, 0.5, 0], [math.nan] * 3, [0, 0, 1]]), False),
        (WCA(), torch.eye(3), False),
    ],
)
def test_weights_are_not_recorded_where_clients_start_from_their_own_models(
    aggregator: Aggregator, weights: torch.Tensor, own: bool
) -> None:
    outcome = SimpleNamespace(weights=weights, present=torch.tensor([True, False, True]))
    method = SimpleNamespace(aggregator=aggregator)
    assert starts_from_own(method, outcome) == own  # type: ignore[arg-type]
