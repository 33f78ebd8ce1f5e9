"""Warnings that a run gives about the numbers of a round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedwca.aggregators.wca import WCA
from fedwca.clusterers import clusterers
from fedwca.runs.records.round_warnings import WarnOnce


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
