"""A clusterer whose answer is invalid is named in the error, with what would be valid."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.ifca import IFCA
from fedwca.clusterers.single import Single
from fedwca.core.grouping import GroupingInput, OneGroup, check_notes
from fedwca.core.interfaces import Aggregator
from fedwca.errors import FedwcaError
from fedwca.federated.assign_clusters import compare_clients
from tests.federated.test_server_rules import make, method, play


class Listed(Single):
    """A list in place of a tensor."""

    name = "listed"

    def __call__(self, signatures: Any) -> Any:
        """One cluster."""
        return [0] * int(signatures.clients)


def test_a_clusterer_that_gives_a_list() -> None:
    with pytest.raises(FedwcaError, match="clusterer 'listed' gave a list; right would be 4 int64 labels"):
        play(make("loop"), replace(method(Aggregator()), clusterer=Listed()))


@pytest.mark.parametrize("groups", [None, torch.zeros(3).long(), torch.zeros(4), torch.zeros(4).long() - 1])
def test_groups_are_numbers_of_clients(groups: Any) -> None:
    class Given(OneGroup):
        """Groups as they are given."""

        def assign(self, given: GroupingInput) -> Tensor:
            """These."""
            answer: Tensor = groups
            return answer

    class Grouped(FedAvg):
        """An aggregator with that grouping."""

        name = "grouped"
        grouping = Given()

    class Dealing(IFCA):
        """Clients choose, and begin in those groups."""

        name = "dealing"

        def first_groups(self, clients: int, draws: Tensor) -> Tensor:
            """These."""
            answer: Tensor = groups
            return answer

    for aggregator, answer in ((Grouped(), "grouping"), (Dealing(), "first_groups")):
        with pytest.raises(FedwcaError, match=f"'{aggregator.name}': {answer} gave .*; right are the groups of 4 clie"):
            play(make("loop"), method(aggregator))


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ({"ari": 1.0}, "notes 'ari', which is measured of every clustering; rename it"),
        ({"found": {1}}, "notes 'found' as a set; right are plain values, as JSON has"),
        (None, ": notes gave nothing; right is a mapping of names to values"),
    ],
)
def test_a_clusterers_notes(note: dict[str, Any], said: str) -> None:
    assert check_notes({"levels": [1]}, "mine") == {"levels": [1]}
    with pytest.raises(FedwcaError) as error:
        check_notes(note, "mine")
    assert str(error.value) == f"clusterer 'mine'{'' if said[0] == ':' else ' '}{said}"


@pytest.mark.parametrize(
    ("compared", "said"),
    [
        (torch.zeros(4, 2), r"gave torch.float32 of shape \(4, 2\) and the metric None; right are"),
        (
            (torch.zeros(3, 2), "cosine"),
            r"shape \(3, 2\) and the metric 'cosine'; right are floating-point vectors of 4",
        ),
        ((torch.zeros(4), "cosine"), r"shape \(4,\)"),
        ((torch.zeros(4, 2), "manhattan"), "the metric 'manhattan'; right are .*, and cosine or euclidean"),
    ],
)
def test_vectors_of_clients_are_one_for_each_and_a_metric(compared: Any, said: str) -> None:
    class Comparing(Single):
        """Compares clients by those vectors."""

        name = "comparing"

        def client_vectors(self, signatures: Any) -> Any:
            """These."""
            return compared

    with pytest.raises(FedwcaError, match=f"clusterer 'comparing': client_vectors .*{said}"):
        compare_clients(Comparing(), SimpleNamespace(clients=4))  # type: ignore[arg-type]
    compared = torch.arange(24.0).view(4, 2, 3), "cosine"
    assert compare_clients(Comparing(), SimpleNamespace(clients=4))[0].shape == (4, 6)  # type: ignore[arg-type]


class Narrow(Single):
    """Labels of the wrong type."""

    name = "narrow"

    def __call__(self, signatures: Any) -> Tensor:
        """One cluster."""
        return torch.zeros(signatures.clients, dtype=torch.int32)


def test_a_clusterer_that_gives_labels_of_another_type() -> None:
    with pytest.raises(
        FedwcaError, match=r"clusterer 'narrow' gave torch.int32 of shape \(4,\); right would be 4 int64"
    ):
        play(make("loop"), replace(method(Aggregator()), clusterer=Narrow()))
