"""Runs of methods with networks beside the model: recorded, resumed to the same bits, exported, joined, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.config.resolve_config import resolve_plan
from fedwca.deploy.deployable_checks import require_deployable
from fedwca.errors import UsageError
from fedwca.export.load_model import read_exported
from fedwca.models.lenet import LeNet
from fedwca.runs import run_rounds
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import resume_experiment, run_experiment
from tests.cli.conftest import call

NAMES = ["fedsr", "fedadg"]
WIDTH, CLASSES, TRAIN, NEW = 8, 10, 5, 6
LAST = WIDTH * WIDTH + WIDTH
GENERATOR = (10 + CLASSES) * 128 + 128 + 128 * WIDTH + WIDTH
SENT_BESIDE = {"fedsr": LAST, "fedadg": GENERATOR}
"""Values that travel beside FedAvg's: FedSR's second last layer; FedADG's generator, and not its discriminator."""
SMALL: dict[str, Any] = {
    "preset": "upfl",
    "clients": TRAIN,
    "new_clients": NEW,
    "samples": 20,
    "rounds": 2,
    "source_models": 1,
    "composed": False,
    "device": "cpu",
    "baselines": ["fedavg", *NAMES],
}
OVERRIDES = {"training.steps": 2, "model.mlp.width": WIDTH}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("beside") / "run"
    return run_experiment(**SMALL, overrides=OVERRIDES, out=out, keep="all").path


def records(path: Path, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key not in without} for record in lines]


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_of_what_travels(run: Path, name: str) -> None:
    for number in (0, 1):
        by_name = {record["method"]: record for record in records(run) if record["round"] == number}
        for way in ("bytes_up", "bytes_down"):
            assert by_name[name][way] - by_name["fedavg"][way] == 4 * TRAIN * SENT_BESIDE[name]


@pytest.mark.parametrize("name", NAMES)
def test_all_methods_begin_with_the_same_weights(run: Path, name: str) -> None:
    plain, own = open_run(run, "fedavg", round=0), open_run(run, name, round=0)
    assert torch.equal(own.layout.without_extras(own.server.rows), plain.server.rows)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run_rounds.begin_round

    def stop(*given: Any, **more: Any) -> Any:
        if given[1] == 1 and given[4].name == next_one:
            raise KeyboardInterrupt
        return real(*given, **more)

    monkeypatch.setattr(run_rounds, "begin_round", stop)
    out = tmp_path / "run"
    for i, name in enumerate(NAMES):
        next_one = name
        with pytest.raises(KeyboardInterrupt):
            resume_experiment(out) if i else run_experiment(**SMALL, overrides=OVERRIDES, out=out, keep="all")
    monkeypatch.setattr(run_rounds, "begin_round", real)
    done = resume_experiment(out)
    assert records(done.path, ("seconds",)) == records(run, ("seconds",))
    for name in NAMES:
        one, other = open_run(run, name), open_run(done.path, name)
        assert torch.equal(one.server.rows, other.server.rows)
        assert torch.equal(one.bank, other.bank)


@pytest.mark.parametrize("name", ["fedsr", "fedadg"])
def test_what_leaves_is_the_network_that_predicts(run: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "model.safetensors"
    result = call("export", str(run), "--method", name, "--client", "1", "--out", str(file))
    assert result.code == 0, result.err
    network, about = read_exported(file)
    opened = open_run(run, name)
    assert not list(network.extras.parameters())
    state = network.state_dict()
    for slot in opened.layout.parameters:
        if not slot.name.startswith("extras."):
            assert torch.equal(state[slot.name], slot.of(opened.delivered[1]))
    assert ("means over 20 draws" in " ".join(about.notes)) == (name == "fedsr")


@pytest.mark.parametrize("name", ["fedsr", "fedadg"])
def test_a_client_that_joins_needs_an_adaptation(run: Path, tmp_path: Path, name: str) -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 28, 28, 3), dtype=np.uint8)
    np.savez(tmp_path / "late.npz", images=images)
    given = ["join", str(run), "--method", name, "--data", str(tmp_path / "late.npz"), "--json", "--out"]
    plain = call(*given, str(tmp_path / "plain"))
    assert (plain.code, "nothing to adapt by; take --adapt entropy" in plain.err) == (2, True)
    found = call(*given, str(tmp_path / "own"), "--adapt", "entropy:steps=2")
    assert found.code == 0, found.err
    assert json.loads(found.out)["adaptation"]["steps"] == 2


BESIDE = {"fedsr": "simple_representation", "fedadg": "reference_distribution"}


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"training": {"trains": "extractor"}}, "which trains = extractor leaves as they are"),
        ({"finish": ["simple_representation"]}, "which a last phase does not"),
        ({"adaptation": "learned"}, "which no objective of this method trains"),
    ],
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], sentence: str) -> None:
    given = {"target": "neon", "aggregator": "fedavg", "objectives": ["simple_representation"], "finish": []}
    with pytest.raises(UsageError) as caught:
        resolve_plan({"baselines": [], **given, **layer})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("name", BESIDE.values())
def test_deployments_do_not_play_it(name: str) -> None:
    plan = resolve_plan({"objectives": [name], "baselines": [], "aggregator": "fedavg", "pseudo_labeler": "argmax"})
    method, rounds = plan.methods[-1]
    with pytest.raises(UsageError, match=f"cannot be deployed: objective '{name}' trains networks beside the model"):
        require_deployable(method, rounds, LeNet().build(2))
