"""Labels that a setting hides reach the metrics alone: shuffled within each client's images they change no model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.config.baselines import baseline_names
from fedwca.data.dataset import Domain, FederatedDataset
from fedwca.data.federation import Federation
from fedwca.data.metrics import Metrics
from fedwca.datasets.digits_mini import DigitsMini
from fedwca.runs import split_trials
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench

TINY = {"rounds": 2, "batch_size": 8, "device": "cpu", "keep": "all", "composed": False}
SETTINGS: dict[str, dict[str, Any]] = {
    "ffreeda": {"clients": 2, "samples": 20, "epochs": 2, "lr": 0.02, "overrides": {"source_training.epochs": 1}},
    "sfda": {"target": "neon", "samples": 20, "overrides": {"finish_training.epochs": 1}},
    "upfl": {
        "preset": "upfl",
        "partition": "shards:public=0.2",
        "clients": 3,
        "new_clients": 3,
        "samples": 12,
        "source_models": 1,
    },
}
SMALLER = {"ffreeda": {"model.bottleneck": 8}, "sfda": {"model.bottleneck": 8}, "upfl": {"model.width": 8}}
MEASURED = ("seconds", "source_digest", "accuracy", "calibration_error", "confusion", "pseudo_label", "class_counts")
"""Beginnings of names in records whose values are of labels, or of the clock."""


def unmeasured(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what labels are for."""
    kept = {key: value for key, value in record.items() if not key.startswith(MEASURED)}
    return {key: unmeasured(value) if isinstance(value, dict) else value for key, value in kept.items()}


def play(setting: str, out: Path, methods: list[str]) -> Path:
    given = dict(SETTINGS[setting])
    overrides = {**given.pop("overrides", {}), **SMALLER[setting]}
    return bench(**TINY, **given, baselines=methods, overrides=overrides, out=out).path


def shuffle_domains(monkeypatch: pytest.MonkeyPatch, shown: set[str]) -> None:
    """Shuffle the labels of all domains but those whose labels are shown."""
    real = DigitsMini.load

    def load(self: DigitsMini, size: int = 32) -> FederatedDataset:
        found = real(self, size)
        others = {
            name: Domain(name, one.images, np.random.default_rng(0).permutation(one.labels), one.groups)
            for name, one in found.domains.items()
            if name not in shown
        }
        return FederatedDataset(found.name, found.classes, {**found.domains, **others})

    monkeypatch.setattr(DigitsMini, "load", load)


def shuffle_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shuffle the labels of each new client."""
    real = split_trials.split_trial

    def split(*given: Any) -> Federation:
        found = real(*given)
        (new,) = found.newcomers
        draws = torch.Generator().manual_seed(0)
        truths = [new.metrics.truth(k) for k in range(len(new))]
        others = [own[torch.randperm(len(own), generator=draws)] for own in truths]
        none = [torch.zeros(0, dtype=torch.int64)] * len(new)
        return replace(found, newcomers=(replace(new, metrics=Metrics(new.metrics.domains, none, others)),))

    monkeypatch.setattr(split_trials, "split_trial", split)


@pytest.mark.filterwarnings("ignore::UserWarning")  # on so few images
@pytest.mark.parametrize("setting", SETTINGS)
def test_no_method_meets_hidden_labels(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [name for name in baseline_names(setting) if name != "oracle"]
    own = play(setting, tmp_path / "own", methods)
    if setting == "upfl":
        shuffle_newcomers(monkeypatch)
    else:
        shown = {"handwritten"} if setting == "ffreeda" else {"handwritten", "photo", "printed", "street"}
        shuffle_domains(monkeypatch, shown)
    other = play(setting, tmp_path / "other", methods)
    mine, theirs = (
        [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()] for run in (own, other)
    )
    assert [unmeasured(record) for record in mine] == [unmeasured(record) for record in theirs]
    assert mine != theirs
    for method in {record["method"] for record in mine if record["round"] >= 0}:
        one, two = open_run(own, method), open_run(other, method)
        assert torch.equal(one.bank, two.bank), method
        assert torch.equal(one.server.rows, two.server.rows), method
        assert torch.equal(one.delivered, two.delivered), method


def test_an_oracle_meets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would see of a method that reads hidden labels."""
    own = play("sfda", tmp_path / "own", ["oracle"])
    shuffle_domains(monkeypatch, {"handwritten", "photo", "printed", "street"})
    other = play("sfda", tmp_path / "other", ["oracle"])
    assert not torch.equal(open_run(own, "oracle").server.rows, open_run(other, "oracle").server.rows)
