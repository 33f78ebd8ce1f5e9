"""Trials that run together: the progress that a benchmark reports of them, and how they end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.federated.open_round import OpenRound
from fedwca.results.checkpoints import Checkpoints
from fedwca.results.diverged_runs import DIVERGED
from fedwca.runs import run_rounds as federate
from fedwca.runs.load_data import load
from fedwca.runs.python_api import bench, resume
from fedwca.runs.reporter import Progress
from fedwca.runs.run_trials_and_methods import run_bench
from fedwca.runs.split_trials import TrialSplits
from tests.read_rounds import read_rounds
from tests.runs.stopping import stop


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
    events: list[tuple[object, ...]] = []
    progress = Progress(
        method_start=lambda *event: events.append(("begin", *event)),
        other_rounds=lambda rounds: events.append(("elsewhere", rounds)),
        round_done=lambda done, accuracy: events.append(("round", done)),
        method_end=lambda label, accuracy: events.append(("end", label)),
        client_done=lambda client: events.append(("client",)),
    )
    dataset, source = load(config)
    records = list(run_bench(config, compose(config), TrialSplits(config, dataset, source), progress))
    clients = len(records[0]["accuracy"])
    assert len(records) == 3 * (1 + 3)
    labels = [event[1] for event in events if event[0] == "begin"]
    assert labels == [
        f"{name}, {runs}" for runs in ("runs 1, 2 of 3", "run 3 of 3") for name in ("Source Only", "Local")
    ]
    assert [event for event in events if event[0] == "begin"][1] == ("begin", labels[1], 2, 2 * clients)
    rounds = sum(event[0] == "round" for event in events) + sum(event[1] for event in events if event[0] == "elsewhere")  # type: ignore[misc]
    assert rounds == 3 * 2
    assert sum(event[0] == "client" for event in events) == 3 * 2 * clients


def test_a_trial_that_diverges_costs_no_other(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    original, opened_rounds, diverge = federate.close_round, list[OpenRound](), list[bool]()

    def conclude(opened: OpenRound, uploads: object) -> object:
        opened_rounds.append(opened)
        if len(opened_rounds) == 2 and diverge:
            opened.engine.bank[0] = torch.nan
        return original(opened, uploads)  # type: ignore[arg-type]

    monkeypatch.setattr(federate, "close_round", conclude)
    dataset, source = load(config)
    messages: list[str] = []
    undisturbed = list(run_bench(config, compose(config), TrialSplits(config, dataset, source)))
    opened_rounds.clear()
    diverge.append(True)
    records = list(
        run_bench(config, compose(config), TrialSplits(config, dataset, source), Progress(warn=messages.append))
    )
    assert [message for message in messages if "diverged" in message] == [
        "Local, source model 0, trial 1, diverged in round 1: client 0's model has values that are not finite; "
        "a lower --lr may help"
    ]
    ended = {(r["method"], r["trial"]): r["round"] for r in records}
    assert ended == {
        **{("source_only", trial): -1 for trial in range(3)},
        **{("local", t): 1 - (t == 1) for t in range(3)},
    }
    (diverged,) = [record for record in records if DIVERGED in record]
    assert (diverged["trial"], diverged["round"]) == (1, 0)
    assert all(map(math.isnan, diverged["accuracy"]))
    accuracies = [
        [r["accuracy"] for r in run_records if r["method"] == "local" and r["trial"] != 1]
        for run_records in (undisturbed, records)
    ]
    assert accuracies[0] == accuracies[1]


@pytest.mark.parametrize("keep", ["last", "none"])
def test_stopped_before_checkpoints_are_dropped_a_run_drops_them_later(shades: Path, tmp_path: Path, keep: str) -> None:
    settings: dict[str, Any] = {"data": shades, "dataset": "folder", "model": "lenet", "clients": 1, "rounds": 2}
    settings |= {"epochs": 1, "baselines": ["local"], "composed": False, "trials": 2, "trials_at_once": 2}
    settings |= {"engine": "stacked", "device": "cpu", "keep": keep, "overrides": {"model.bottleneck": 8}}
    run = bench(**settings, out=tmp_path / "run").path
    stop(lambda: bench(**settings, out=tmp_path / "stopped"), 1, "end", Checkpoints)
    resumed = resume(tmp_path / "stopped").path
    assert read_rounds(resumed, without=["seconds"]) == read_rounds(run, without=["seconds"])
    files, resumed_files = ({str(file.relative_to(path)) for file in path.rglob("*")} for path in (run, resumed))
    assert resumed_files == files
