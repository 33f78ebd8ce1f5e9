"""What a bench tells of trials that go through rounds together."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.federated.round import OpenRound
from fedwca.results.diverged_runs import DIVERGED
from fedwca.runs import run_rounds as federate
from fedwca.runs.load_data import load
from fedwca.runs.reporter import Progress
from fedwca.runs.run_trials_and_methods import run_bench


@pytest.fixture(scope="module")
def config(shades: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "dataset": "folder",
            "data": shades,
            "model": "lenet",
            "components": {"model": {"lenet": {"bottleneck": 8}}},
            "baselines": ["source_only", "local"],
            "composed": False,
            "clients": 1,
            "rounds": 2,
            "trials": 3,
            "training": {"epochs": 1, "batch_size": 8},
            "source_training": {"epochs": 1},
            "engine": "stacked",
            "trials_at_once": 2,
            "device": "cpu",
        }
    )


def test_every_round_is_counted_once(config: RunConfig) -> None:
    told: list[tuple[object, ...]] = []
    progress = Progress(
        begin=lambda *given: told.append(("begin", *given)),
        elsewhere=lambda rounds: told.append(("elsewhere", rounds)),
        round=lambda done, accuracy: told.append(("round", done)),
        end=lambda label, accuracy: told.append(("end", label)),
        client=lambda client: told.append(("client",)),
    )
    dataset, source = load(config)
    records = list(run_bench(config, compose(config), dataset, source, progress))
    clients = len(records[0]["accuracy"])
    assert len(records) == 3 * (1 + 3)
    labels = [given[1] for given in told if given[0] == "begin"]
    assert labels == [
        f"{name}, {which}" for which in ("runs 1, 2 of 3", "run 3 of 3") for name in ("Source Only", "Local")
    ]
    assert [given for given in told if given[0] == "begin"][1] == ("begin", labels[1], 2, 2 * clients)
    rounds = sum(given[0] == "round" for given in told) + sum(given[1] for given in told if given[0] == "elsewhere")  # type: ignore[misc]
    assert rounds == 3 * 2
    assert sum(given[0] == "client" for given in told) == 3 * 2 * clients


def test_a_trial_that_diverges_costs_no_other(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen, wild = federate.close_round, list[OpenRound](), list[bool]()

    def conclude(opened: OpenRound, uploads: object) -> object:
        seen.append(opened)
        if len(seen) == 2 and wild:
            opened.engine.bank[0] = torch.nan
        return real(opened, uploads)  # type: ignore[arg-type]

    monkeypatch.setattr(federate, "close_round", conclude)
    dataset, source = load(config)
    told: list[str] = []
    before = list(run_bench(config, compose(config), dataset, source))
    seen.clear()
    wild.append(True)
    records = list(run_bench(config, compose(config), dataset, source, Progress(warn=told.append)))
    assert [sentence for sentence in told if "diverged" in sentence] == [
        "Local, source model 0, trial 1, diverged in round 1: client 0's model has values that are not finite; "
        "a lower --lr may help"
    ]
    ended = {(r["method"], r["trial"]): r["round"] for r in records}
    assert ended == {
        **{("source_only", trial): -1 for trial in range(3)},
        **{("local", t): 1 - (t == 1) for t in range(3)},
    }
    (lost,) = [record for record in records if DIVERGED in record]
    assert (lost["trial"], lost["round"]) == (1, 0)
    assert all(map(math.isnan, lost["accuracy"]))
    whole = [
        [r["accuracy"] for r in found if r["method"] == "local" and r["trial"] != 1] for found in (before, records)
    ]
    assert whole[0] == whole[1]
