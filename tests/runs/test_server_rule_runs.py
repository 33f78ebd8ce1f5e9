"""Runs of methods whose servers do more than average: records, resuming to the same bits, learning, deployments."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fedwca.config.resolve_config import resolve_plan
from fedwca.deploy.deployable_checks import check_deployable
from fedwca.errors import UsageError
from fedwca.models.lenet import LeNet
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench, resume
from tests.cli.conftest import call
from tests.read_rounds import read_rounds
from tests.runs.stopping import check_same_bits, stop
from tests.runs.test_new_clients import OVERRIDES, SMALL

METHODS = ["fedavg", "afl", "fedgma", "scaffold", "pfl_sampled", "pfl_ensemble"]


def play(out: Path, **changes: Any) -> Path:
    settings = {**SMALL, "baselines": METHODS, "composed": False, "rounds": 2, **changes}
    return bench(**settings, overrides=OVERRIDES, out=out, keep="all").path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("servers") / "run")


def test_every_method_measures_both_groups(run: Path) -> None:
    last = {record["method"]: record for record in read_rounds(run, number=1)}
    assert list(last) == METHODS
    for record in last.values():
        assert all(math.isfinite(x) for x in (*record["accuracy"][4:], *record["accuracy_validation"][:4]))
    assert len(last["afl"]["received_loss"]) == 4


def test_bytes_are_those_of_what_travels(run: Path) -> None:
    layout = open_run(run, "fedavg").layout
    model, shared = 4 * layout.width, 4 * layout.classifier.start
    down = dict.fromkeys(METHODS, (model, model)) | {"scaffold": (model, 2 * model)}
    down |= dict.fromkeys(METHODS[-2:], (model, shared))
    up = dict.fromkeys(METHODS, 4 * model) | {"afl": 4 * model + 4 * 4} | dict.fromkeys(METHODS[-2:], 4 * shared)
    for record in read_rounds(run):
        if record["round"] >= 0:
            name = record["method"]
            assert record["bytes_down"] == 4 * down[name][record["round"]], name
            assert record["bytes_up"] == up[name], name


@pytest.mark.parametrize("stopped", METHODS[1:])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(stopped: str, run: Path, tmp_path: Path) -> None:
    stop(lambda: play(tmp_path / "run", baselines=[stopped]), call=2)
    check_same_bits(resume(tmp_path / "run").path, run, methods={stopped})


@pytest.mark.slow
def test_every_method_learns(tmp_path: Path) -> None:
    settings = {"preset": "upfl", "source_models": 1, "rounds": 15, "device": "cpu", "baselines": METHODS}
    path = bench(**settings, composed=False, out=tmp_path / "run").path
    records_by_method = {name: read_rounds(path, name) for name in METHODS}
    for name, records in records_by_method.items():
        first, last = (sum(r["accuracy_validation"][:20]) / 20 for r in (records[0], records[-1]))
        assert last - first > 60, (name, first, last)  # measured: 80 and more


@pytest.mark.parametrize("aggregator", ["afl", "scaffold", "fedper"])
def test_deployments_refuse_what_they_cannot_send(aggregator: str) -> None:
    baseline = {"fedper": "pfl_sampled"}.get(aggregator, aggregator)
    plan = resolve_plan({"baselines": [baseline]}, preset_name="upfl")
    with pytest.raises(UsageError, match=f"aggregator '{aggregator}'.*`fedwca bench` runs it"):
        check_deployable(plan.methods[0][0], 1, LeNet(bottleneck=4).build(3, seed=0), 4)


def test_new_clients_get_other_clients_layers_and_training_clients_their_own(run: Path) -> None:
    sampled, ensemble = (read_rounds(run, name) for name in METHODS[-2:])
    assert [r["accuracy_validation"] for r in sampled] == [r["accuracy_validation"] for r in ensemble]
    assert [r["accuracy"] for r in sampled] != [r["accuracy"] for r in ensemble]
    opened = open_run(run, "pfl_sampled")
    head = opened.layout.classifier
    assert torch.equal(opened.delivered[:, head], opened.bank[:, head])
    assert len(opened.delivered[:, : head.start].unique(dim=0)) == 1
    words = ("export", str(run), "--method", "pfl_sampled", "--out", str(run.parent / "model.safetensors"))
    assert call(*words, "--client", "1").code == 0
    exported = call(*words, "--cluster", "0")
    assert (exported.code, "so no whole model is a cluster's; take --client K" in exported.err) == (2, True)


def test_nobody_joins_by_what_only_clients_have(run: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for index in range(2):
        Image.new("L", (28, 28), 9 * index).save(tmp_path / "photos" / f"{index}.png")
    words = ("--data", str(tmp_path / "photos"), "--out", str(tmp_path / "joined"))
    for more in ([], ["--adapt", "entropy"]):
        joined = call("join", str(run), "--method", "pfl_sampled", *words, *more)
        assert (joined.code, "so there is no whole model for a newcomer" in joined.err) == (2, True)
    untrained = call("join", str(run), "--method", "scaffold", *words, "--adapt", "5")
    assert (untrained.code, "take --adapt entropy" in untrained.err) == (2, True)
    assert call("join", str(run), "--method", "scaffold", *words, "--adapt", "entropy").code == 0


@pytest.mark.parametrize(
    ("overrides", "what"),
    [({"aggregator.fedper.layers": 2}, "2 layers"), ({"model.classifier": "wn"}, "a weight-normalised classifier")],
)
def test_a_mean_of_layers_that_is_no_mean_of_outputs_is_refused(overrides: dict[str, Any], what: str) -> None:
    pairs = [(key, str(value)) for key, value in overrides.items()]
    with pytest.raises(UsageError, match=rf"which it is of one linear layer, not of {what}; take layers=1"):
        resolve_plan({"baselines": ["pfl_ensemble"]}, pairs, preset_name="upfl")
    assert resolve_plan({"baselines": ["pfl_sampled"]}, pairs, preset_name="upfl").methods
