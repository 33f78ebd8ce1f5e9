"""Warnings that a run gives about the numbers of a round."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.wca import WCA
from fedwca.clusterers import clusterers
from fedwca.core.messages import Targets
from fedwca.results.report.warnings import _alone
from fedwca.results.unit import Unit
from fedwca.runs.records.round_warnings import WarnOnce
from fedwca.runs.resuming import checkpointer


def test_what_was_said_of_all_methods_is_not_said_again_after_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointer, "state_to_tensors", lambda state, engine: ({}, ""))
    saved = Mock()
    saves = checkpointer.Checkpointer(saved)
    saves.told |= {"trust", "one fedavg", "one fedprox"}
    saves.save(Unit(0, 0, "fedavg"), Mock(), Mock(), Mock(), last=False)
    assert saved.save.call_args.args[3]["told"] == ["one fedavg", "trust"]


@pytest.mark.parametrize(
    ("name", "advised"), [("finch", True), ("kmeans", True), ("ada_bn", False), ("single", False), ("ladd", False)]
)
def test_more_training_is_advised_where_clusters_are_made_of_trained_models(name: str, advised: bool) -> None:
    sentences: list[str] = []
    parts = {"aggregator": WCA(), "clusterer": clusterers.build(name), "finish": ()}
    method: Any = SimpleNamespace(name="wca", label="FedWCA", **parts)
    outcome: Any = SimpleNamespace(uploads={}, notes={}, labels=torch.zeros(4, dtype=torch.int64))
    WarnOnce(sentences.append)({"round": 0, "label_entropy": []}, outcome, method)
    (sentence,) = sentences
    assert sentence.startswith("FedWCA: all clients are in one cluster, so this is an average of everybody")
    assert ("raise --samples or --epochs" in sentence) == advised


def test_one_cluster_of_a_single_client_is_one() -> None:
    sentences: list[str] = []
    parts = {"aggregator": WCA(), "clusterer": clusterers.build("finch"), "finish": ()}
    method: Any = SimpleNamespace(name="wca", label="FedWCA", **parts)
    outcome: Any = SimpleNamespace(uploads={}, notes={}, labels=torch.tensor([0, 0, 1]))
    WarnOnce(sentences.append)({"round": 0, "label_entropy": []}, outcome, method)
    assert sentences == ["FedWCA: 1 cluster has a single client, whose model would be handed on as it is"]
    record = {"source_model": 0, "trial": 0, "clustering": {"sizes": [2, 1]}}
    assert list(_alone([record])) == ["1 of 2 clusters has a single client, whose model is handed on as it is."]


@pytest.mark.parametrize(("selects", "told"), [(False, 1), (True, 0)])
def test_clients_without_a_weight_are_warned_of_once_unless_they_are_selected(selects: bool, told: int) -> None:
    sentences: list[str] = []
    method: Any = SimpleNamespace(
        name="mine",
        label="Mine",
        aggregator=FedAvg(),
        pseudo_labeler=SimpleNamespace(selects_clients=selects),
        finish=(),
    )
    uploads = {client: SimpleNamespace(targets=Targets.of_labels(torch.tensor([0, 1]))) for client in range(3)}
    outcome: Any = SimpleNamespace(uploads=uploads, notes={}, labels=torch.zeros(3, dtype=torch.int64))
    warn = WarnOnce(sentences.append)
    warn({"round": 0, "label_entropy": [0.5] * 3, "dropped": [1.0, 0.0, math.nan]}, outcome, method)
    assert sentences == []
    for dropped in ([1.0, 2.0, 2.0], [2.0, 2.0, 2.0]):
        warn({"round": 1, "label_entropy": [0.5] * 3, "dropped": dropped}, outcome, method)
    sentence = "Mine: in round 2 none of client 1's images has a weight above 0, and such pseudo-labels train nothing"
    assert sentences == [sentence] * told
