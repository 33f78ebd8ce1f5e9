"""Kinds of grouping: the labels each gives, a new kind, and the older words that plugins may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators import aggregators
from fedwca.aggregators.ifca import IFCA
from fedwca.aggregators.one_hot import OneHot
from fedwca.clusterers.finch import Finch
from fedwca.core.grouping import (
    GROUPINGS,
    ByChoice,
    ByClusterer,
    EachAlone,
    Grouping,
    GroupingInput,
    OneGroup,
    check_labels,
)
from fedwca.core.interfaces import Aggregator
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.data.metrics import Metrics
from fedwca.engine.randomness import Keys, uniform
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.assign_clusters import assign_clusters
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.models.lenet import LeNet
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.runs.records.round_record import describe_round


def given(round: int, choices: Mapping[int, int] | None = None) -> GroupingInput:
    """Four clients: a clusterer that pairs them, alternating choices in round 0, other labels in the round before."""
    state = {"labels": torch.tensor([1, 0, 0, 0])} if round else {}
    return GroupingInput(
        round, 4, state, choices or {}, lambda: torch.tensor([0, 0, 1, 1]), lambda: torch.tensor([0, 1, 0, 1])
    )


@pytest.mark.parametrize(
    ("grouping", "first", "later"),
    [
        (ByClusterer(), [0, 0, 1, 1], [1, 0, 0, 0]),
        (OneGroup(), [0, 0, 0, 0], [0, 0, 0, 0]),
        (EachAlone(), [0, 1, 2, 3], [0, 1, 2, 3]),
        (ByChoice(), [0, 1, 0, 1], [1, 2, 0, 0]),
    ],
    ids=list(GROUPINGS),
)
def test_groups_after_round_0_and_later(grouping: Grouping, first: list[int], later: list[int]) -> None:
    assert grouping.assign(given(0)).tolist() == first
    assert grouping.assign(given(1, {1: 2})).tolist() == later


def test_assigning_leaves_the_state_alone() -> None:
    for grouping in GROUPINGS.values():
        grouping_input = given(3, {0: 5})
        grouping.assign(grouping_input)[0] = 9
        assert grouping_input.state["labels"].tolist() == [1, 0, 0, 0]


def test_properties_of_each_kind_of_grouping() -> None:
    assert [kind.needs_clusterer for kind in GROUPINGS.values()] == [True, False, False, False]
    assert [kind.keeps_models_apart for kind in GROUPINGS.values()] == [False, False, True, False]
    assert [kind.clients_choose for kind in GROUPINGS.values()] == [False, False, False, True]
    assert [kind.makes_groups(first=True) for kind in GROUPINGS.values()] == [True, False, False, True]
    assert [kind.makes_groups(first=False) for kind in GROUPINGS.values()] == [False, False, False, True]
    assert [kind.count_rows(clients=20, domains=4) for kind in GROUPINGS.values()] == [4, 4, 20, 4]
    assert ByClusterer() == Aggregator.grouping != OneGroup()
    assert len({ByClusterer(), ByClusterer(), OneGroup()}) == 2


class Pairs(Grouping):
    """Groups clients in pairs by their numbers."""

    name = "pairs"

    def assign(self, given: GroupingInput) -> Tensor:
        """0, 0, 1, 1, …"""
        return torch.arange(given.clients) // 2


def test_another_kind_is_one_class() -> None:
    class Paired(Aggregator):
        grouping = Pairs()

    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(0, 255, (4, 3, 32, 32), dtype=torch.uint8, generator=generator) for _ in range(4)]
    clients = [ClientImages(x, x[:0]) for x in images]
    engine = SequentialEngine(LeNet(bottleneck=4).build(2), clients, "cpu", 1)
    method = Method("paired", "Paired", Paired(), Argmax(), (Shot(),))
    server = init_server(engine)
    for number in range(2):
        server, outcome = run_round(number, server, method, engine, Training(epochs=1), Keys(0), torch.zeros(4).long())
        assert outcome.labels.tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(server.rows[1], engine.bank[2:].mean(0))
    labels = [torch.zeros(4, dtype=torch.int64)] * 4
    metrics = Metrics(("a",) * 4, labels, [x[:0] for x in labels])
    assert "clustering" not in describe_round(outcome, method, metrics, engine, first=False)


@pytest.mark.parametrize("word", GROUPINGS)
def test_plugins_may_still_say_partition(word: str) -> None:
    with pytest.warns(FutureWarning, match=rf'Old\.partition = "{word}" is now grouping = fedwca\.core\.grouping\.'):

        class Old(Aggregator):
            partition = word

    class Older(Old):
        pass

    assert Old.grouping == Older().grouping == GROUPINGS[word]
    with pytest.warns(FutureWarning, match=r"Old\.partition is now Old\.grouping\.name"):
        assert Old().partition == word


def test_an_unknown_partition_word_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Odd\.partition is 'both'; there are given, one, each, self"):

        class Odd(Aggregator):
            partition = "both"


def test_components_are_built_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    for name in aggregators.names():
        built: Any = aggregators.build(name)
        built.model_dump()
        assert isinstance(built.grouping, Grouping)
    assert (OneHot().grouping, Finch().oracle) == (ByClusterer(), False)
    assert not recwarn.list


@pytest.mark.parametrize(("given", "shown"), [(OneGroup, "OneGroup"), ("one", "'one'")])
def test_a_grouping_is_an_object(given: object, shown: str) -> None:
    with pytest.raises(UsageError, match=f"Other.grouping is {shown}; right is an object, such as OneGroup"):
        type("Other", (Aggregator,), {"grouping": given, "__module__": __name__})


def test_who_lets_clients_choose_says_where_they_begin() -> None:
    aggregator = type("Other", (Aggregator,), {"grouping": ByChoice(), "name": "other", "__module__": __name__})()
    with pytest.raises(
        UsageError, match="aggregator 'other' lets clients choose, and has no `first_groups` for round 0"
    ):
        aggregator.first_groups(3, torch.zeros(3))


@pytest.mark.parametrize("labels", [[0, 10**15], [-1, 0], [0, 2]])
def test_labels_with_gaps_are_refused_however_large(labels: list[int]) -> None:
    with pytest.raises(FedwcaError, match=r"clusterer 'far' gave .*; right would be 2 int64 labels, 0 to C-1"):
        check_labels(torch.tensor(labels), 2, "far")


def test_who_is_absent_in_round_0_leaves_the_draws_of_others() -> None:
    method = Method("own", "Own", IFCA(clusters=3), Argmax(), (Shot(),))
    present, keys = torch.tensor([False, True, True, True]), Keys(1)
    labels, _ = assign_clusters(0, method, {}, {}, present, lambda: pytest.fail("a clusterer is asked"), keys)
    draws = uniform(keys(0, -1, "partition"), torch.arange(4))
    assert labels[present].argsort().tolist() == draws[present].argsort().tolist()
