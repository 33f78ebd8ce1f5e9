"""What holds for every method of every setting.

Labels that the setting hides reach the metrics alone: shuffled within a domain, or a new client, they change no model.
And a run that is stopped after a round goes on to the same bits.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedwca
from fedwca.config.baselines import baseline, baseline_names
from fedwca.config.resolve_config import RunPlan, resolve_plan
from fedwca.data.dataset import Domain, FederatedDataset
from fedwca.data.federation import Federation
from fedwca.data.metrics import Metrics
from fedwca.datasets.digits_mini import DigitsMini
from fedwca.runs import split_trials
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench
from fedwca.runs.reporter import SILENT, Progress, RunReporter
from tests.conftest import SMALL_MODEL
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, check_same_models

TINY = {"rounds": 2, "batch_size": 8, "device": "cpu", "keep": "all", "composed": False}
SETTINGS: dict[str, dict[str, Any]] = {
    "ffreeda": {
        "model": SMALL_MODEL,
        "clients": 1,
        "samples": 20,
        "epochs": 2,
        "lr": 0.02,
        "overrides": {"source_training.epochs": 1},
        "evidence": True,
    },
    "sfda": {
        "model": SMALL_MODEL,
        "target": "neon",
        "samples": 20,
        "overrides": {"finish_training.epochs": 1},
        "evidence": True,
    },
    "upfl": {
        "preset": "upfl",
        "partition": "shards:public=0.02",
        "clients": 3,
        "new_clients": 3,
        "samples": 12,
        "source_models": 1,
        "overrides": {"model.width": 8},
    },
}
MEASURED = {
    *("seconds", "accuracy", "accuracy_validation", "accuracy_local", "accuracy_before"),
    *("calibration_error", "confusion", "pseudo_label_accuracy", "pseudo_label_counts"),
}
"""Fields of records that depend on hidden labels or on the clock; not the accuracies at sources, whose labels are
shown."""
ORACLES = {"true"}
"""Parts that are given what others are not."""


CLUSTERS = "/clusterer=kmeans:least=2,most=2"
"""After so little training FINCH would find one cluster, in which no method mixes models; it stays in `one_hot`."""
OTHER_CLUSTERS = {"one_hot": "", "table5_none": "/clusterer=single", "table5_pp": "/clusterer=each"}
"""What is beside a method's name in place of `CLUSTERS`, so that every clusterer is in a method."""
TRUSTING = f"fedtab/pseudo_labeler=trusted:least=0.1{CLUSTERS}"
"""At the default, FedTAB would trust no client, as the source model is hardly trained; so it trusts three of four."""


class StopsEachMethod(RunReporter):
    """Stops a run, as Ctrl-C does, after the first of two rounds of each method."""

    def __init__(self) -> None:
        self.stops = 0

    def watch(self, plan: RunPlan) -> AbstractContextManager[Progress]:
        return nullcontext(Progress(round_done=self.stop))

    def stop(self, done: int, accuracy: float) -> None:
        if done == 1:
            self.stops += 1
            raise KeyboardInterrupt


def unmeasured(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without the fields in `MEASURED`."""
    fields = {key: value for key, value in record.items() if key not in MEASURED}
    return {key: unmeasured(value) if isinstance(value, dict) else value for key, value in fields.items()}


def play(setting: str, out: Path, methods: list[str], reporter: RunReporter = SILENT) -> Path:
    return bench(**TINY, **SETTINGS[setting], baselines=methods, reporter=reporter, out=out, resume=True).path


def list_methods(setting: str) -> list[str]:
    """All methods of a setting whose models may not depend on hidden labels."""
    names = [name for name in baseline_names(setting) if name not in ("oracle", "fedtab")]
    in_clusters = {name for name in names if baseline(name, setting).clusterer == "finch"}
    clusters = {name: OTHER_CLUSTERS.get(name, CLUSTERS) for name in in_clusters}
    return [*(name + clusters.get(name, "") for name in names), *[TRUSTING] * (setting == "ffreeda")]


def test_every_part_is_in_a_method() -> None:
    parts: dict[str, set[str]] = {}
    for setting, settings in SETTINGS.items():
        layer = {key: settings[key] for key in ("target", "partition") if key in settings}
        layer |= {"baselines": list_methods(setting), "composed": False}
        for method, _ in resolve_plan(layer, preset_name=settings.get("preset", "default")).methods:
            found = {
                "aggregators": [method.aggregator],
                "clusterers": [method.clusterer],
                "pseudo_labelers": [method.pseudo_labeler],
                "objectives": [*method.objectives, *method.finish],
                "adaptations": [method.adaptation],
                "centrals": [method.central],
            }
            for kind, components in found.items():
                parts.setdefault(kind, set()).update(part.name for part in components if part is not None)
    root = Path(fedwca.__file__).parent
    for kind, names in parts.items():
        assert names == {file.stem for file in (root / kind).glob("[!_]*.py")} - ORACLES, kind


@pytest.fixture(scope="module", params=SETTINGS)
def setting(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def whole(setting: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of all methods without a stop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on so few images
        return play(setting, tmp_path_factory.mktemp(setting) / "run", list_methods(setting))


def shuffle_domains(monkeypatch: pytest.MonkeyPatch, shown: set[str]) -> None:
    """Shuffle the labels of all domains but those whose labels are shown."""
    original = DigitsMini.load

    def load(self: DigitsMini, size: int = 32) -> FederatedDataset:
        dataset = original(self, size)
        shuffled = {
            name: Domain(name, domain.images, np.random.default_rng(0).permutation(domain.labels), domain.groups)
            for name, domain in dataset.domains.items()
            if name not in shown
        }
        return FederatedDataset(dataset.name, dataset.classes, {**dataset.domains, **shuffled})

    monkeypatch.setattr(DigitsMini, "load", load)


def shuffle_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shuffle the labels of each new client, and of the images on which training clients are validated."""
    original = split_trials.split_trial

    def split(*arguments: Any) -> Federation:
        federation = original(*arguments)
        (new,) = federation.newcomers
        draws = torch.Generator().manual_seed(0)

        def shuffled(metrics: Metrics) -> Metrics:
            truths = [metrics.test_truth(k) for k in range(len(metrics))]
            return Metrics(
                metrics.domains,
                [metrics.training_truth(k) for k in range(len(metrics))],
                [labels[torch.randperm(len(labels), generator=draws)] for labels in truths],
                metrics.counted.tolist(),
            )

        newcomers = (replace(new, metrics=shuffled(new.metrics)),)
        return replace(federation, metrics=shuffled(federation.metrics), newcomers=newcomers)

    monkeypatch.setattr(split_trials, "split_trial", split)


def forget_central_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a cache without central models, which would be found again whatever labels they are trained with."""
    folder = folder / "cache"
    folder.mkdir()
    for entry in Path(os.environ["FEDWCA_CACHE"]).iterdir():
        if entry.name != "centrals":
            (folder / entry.name).symlink_to(entry)
    monkeypatch.setenv("FEDWCA_CACHE", str(folder))


@pytest.mark.filterwarnings("ignore::UserWarning")  # on so few images
def test_no_method_meets_hidden_labels(
    setting: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting == "upfl":
        shuffle_newcomers(monkeypatch)
    else:
        shown = {"handwritten"} if setting == "ffreeda" else {"handwritten", "photo", "printed", "street"}
        shuffle_domains(monkeypatch, shown)
    if setting == "sfda":
        forget_central_models(tmp_path, monkeypatch)
    shuffled_run = play(setting, tmp_path / "other", list_methods(setting))
    expected, actual = (read_rounds(path, without=["seconds"]) for path in (whole, shuffled_run))
    assert [unmeasured(record) for record in expected] == [unmeasured(record) for record in actual]
    assert expected != actual
    assert setting != "ffreeda" or any(len(set(record.get("trusted", ()))) == 2 for record in expected), (
        "FedTAB trusts all clients, or none"
    )
    # Tables of new clients show the round that is best on validation images, so there the last one is compared.
    check_same_models(whole, shuffled_run, TINY["rounds"] if setting == "upfl" else None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # on so few images
def test_a_run_stopped_in_each_method_goes_on_to_the_same_bits(setting: str, whole: Path, tmp_path: Path) -> None:
    reporter, methods = StopsEachMethod(), list_methods(setting)
    for _ in range(len(methods) + 1):
        with suppress(KeyboardInterrupt):
            play(setting, tmp_path / "run", methods, reporter)
            break
    assert reporter.stops == len(read_rounds(whole, number=0))
    check_same_bits(tmp_path / "run", whole)


def test_an_oracle_depends_on_hidden_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison of models does notice a method that reads hidden labels."""
    original_run = play("sfda", tmp_path / "own", ["oracle", "sfda"])
    shuffle_domains(monkeypatch, {"handwritten", "photo", "printed", "street"})
    shuffled_run = play("sfda", tmp_path / "other", ["oracle", "sfda"])
    assert not torch.equal(open_run(original_run, "oracle").server.rows, open_run(shuffled_run, "oracle").server.rows)
