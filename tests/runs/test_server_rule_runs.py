"""Runs of methods whose servers do more than average: from preset to table, resumed to the same bits, deployed by none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca.config.resolve_config import resolve_plan
from fedwca.deploy.deployable_checks import require_deployable
from fedwca.errors import UsageError
from fedwca.models.lenet import LeNet
from fedwca.runs import run_rounds
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import resume_experiment, run_experiment
from tests.runs.test_new_clients import OVERRIDES, SMALL, records

METHODS = ["fedavg", "afl"]


def play(out: Path) -> Path:
    given = {**SMALL, "baselines": METHODS[:-1], "rounds": 2, "name": "last", "aggregator": METHODS[-1]}
    return run_experiment(**given, overrides=OVERRIDES, out=out, keep="all").path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("servers") / "run")


def test_every_method_measures_both_groups(run: Path) -> None:
    last = {record["method"]: record for record in records(run) if record["round"] == 1}
    assert list(last) == [*METHODS[:-1], "last"]
    for record in last.values():
        assert all(math.isfinite(x) for x in (*record["accuracy"][4:], *record["accuracy_validation"][:4]))
    assert len(last["last"]["received_loss"]) == 4
    assert last["last"]["bytes_up"] == last["fedavg"]["bytes_up"] + 4 * 4
    assert last["last"]["bytes_down"] == last["fedavg"]["bytes_down"]


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run_rounds.begin_round

    def stop(*given: Any, **more: Any) -> Any:
        if given[1] == 1 and given[4].name == "last":
            raise KeyboardInterrupt
        return real(*given, **more)

    monkeypatch.setattr(run_rounds, "begin_round", stop)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run")
    monkeypatch.setattr(run_rounds, "begin_round", real)
    done = resume_experiment(tmp_path / "run").path
    assert json.dumps(records(done)) == json.dumps(records(run))
    assert torch.equal(open_run(done).delivered, open_run(run).delivered)


@pytest.mark.parametrize("aggregator", METHODS[1:])
def test_deployments_refuse_what_they_cannot_send(aggregator: str) -> None:
    made = resolve_plan({"aggregator": aggregator, "name": "own", "baselines": []})
    with pytest.raises(UsageError, match=f"'{aggregator}'.*`fedwca bench` plays it"):
        require_deployable(made.methods[-1][0], 1, LeNet(bottleneck=4).build(3, seed=0))
