from __future__ import annotations

import math

import pytest
import torch

from fedwca.data import Metrics
from fedwca.errors import UsageError


def metrics() -> Metrics:
    train = [torch.tensor([0, 1, 2, 3])] * 4
    test = [torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([], dtype=torch.int64), torch.tensor([2, 2])]
    return Metrics(("a", "a", "b", "c"), train, test)


def test_accuracy_is_percent_and_nan_without_images() -> None:
    assert metrics().accuracy(0, torch.tensor([0, 0])) == 50
    assert metrics().accuracy(1, torch.tensor([1])) == 100
    assert math.isnan(metrics().accuracy(2, torch.zeros(0, dtype=torch.int64)))


def test_pseudo_label_accuracy_is_weighted() -> None:
    labels = torch.tensor([0, 1, 0, 0])
    assert metrics().pseudo_label_accuracy(0, labels) == 50
    assert metrics().pseudo_label_accuracy(0, labels, torch.tensor([1.0, 1.0, 0.0, 0.0])) == 100
    assert metrics().pseudo_label_accuracy(0, labels, torch.tensor([1.0, 0.0, 0.0, 3.0])) == 25
    assert math.isnan(metrics().pseudo_label_accuracy(0, labels, torch.zeros(4)))


def test_confusion_counts_test_images_of_several_clients() -> None:
    predictions = {0: torch.tensor([0, 2]), 1: torch.tensor([2]), 2: torch.zeros(0, dtype=torch.int64)}
    assert metrics().confusion(predictions) == [[0, 0, 1], [1, 2, 2]]
    assert metrics().confusion({}) == []


def test_calibration_pools_the_test_images_of_several_clients() -> None:
    predictions = {0: (torch.tensor([0, 0]), torch.tensor([0.9, 0.9])), 1: (torch.tensor([1]), torch.tensor([0.9]))}
    assert metrics().calibration_error(predictions) == pytest.approx(
        90 - 200 / 3, abs=1e-5
    )  # one bin, two of three right
    assert math.isnan(metrics().calibration_error({2: (torch.zeros(0, dtype=torch.int64), torch.zeros(0))}))
    assert math.isnan(metrics().calibration_error({}))


def test_pseudo_labels_by_class_beside_the_true_ones() -> None:
    assert metrics().pseudo_label_counts({0: torch.tensor([0, 0, 0, 1])}) == [[3, 1], [1, 1], [0, 1], [0, 1]]
    assert metrics().pseudo_label_counts({}) == []


def test_wrong_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="client 1 has 1 images"):
        metrics().confusion({1: torch.tensor([0, 0])})
    with pytest.raises(UsageError, match="client 1 has 1 images"):
        metrics().calibration_error({1: (torch.tensor([0]), torch.ones(2))})
    with pytest.raises(UsageError, match="client 0 has 4 images"):
        metrics().pseudo_label_counts({0: torch.tensor([0])})
    with pytest.raises(UsageError, match="client 0 has 2 images"):
        metrics().accuracy(0, torch.tensor([0]))
    with pytest.raises(UsageError, match="weights of shape"):
        metrics().pseudo_label_accuracy(0, torch.zeros(4), torch.ones(3))
    with pytest.raises(UsageError, match="3 values for 4 clients"):
        metrics().by_domain([1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match=r"\[3\] for 4 clients"):
        metrics().clustering(torch.zeros(3))
    with pytest.raises(UsageError, match="same clients"):
        Metrics(("a",), [], [])


def test_by_domain_skips_nan_and_weighs_clients_alike() -> None:
    means = metrics().by_domain(torch.tensor([10.0, 30.0, math.nan, 5.0]))
    assert means["a"] == 20
    assert math.isnan(means["b"])
    assert means["c"] == 5


def test_domain_labels_count_in_order_of_appearance() -> None:
    assert metrics().domain_labels().tolist() == [0, 0, 1, 2]
    assert metrics().domain_labels().dtype == torch.int64


def test_clustering_against_the_true_domains() -> None:
    perfect = metrics().clustering(torch.tensor([2, 2, 0, 1]))
    assert perfect == {"ari": 1.0, "nmi": 1.0, "purity": 1.0, "sizes": [1, 1, 2]}
    single = metrics().clustering(torch.zeros(4, dtype=torch.int64))
    assert single["ari"] == 0
    assert single["purity"] == 0.5
    assert single["sizes"] == [4]


def test_clusters_that_are_wrong_by_hand() -> None:
    # Domains a, a, b, c. The cluster of three has two clients of its commonest domain, the other cluster has one.
    scores = metrics().clustering(torch.tensor([0, 0, 0, 1]))
    assert scores["ari"] == pytest.approx(1 / 3)
    assert scores["nmi"] == pytest.approx(0.70202, abs=1e-5)
    assert scores["purity"] == 0.75
    assert scores["sizes"] == [3, 1]


def test_labels_are_private() -> None:
    values = {name: getattr(metrics(), name) for name in dir(metrics()) if not name.startswith("_")}
    assert [name for name, value in values.items() if not callable(value)] == ["counted", "domains"]
