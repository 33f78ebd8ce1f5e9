"""Kinds of grouping: which clients are averaged with each other, and what follows from it for the rest of the library.

Each kind is one object. The server, records, memory estimates, deployment and newcomers ask this object and never check
its name, so that a family of methods with another kind adds one class, and its aggregators set
``grouping = ThatClass()``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedwca.core.component_answers import describe_value
from fedwca.core.messages import State
from fedwca.core.plain_values import to_plain
from fedwca.errors import FedwcaError

MEASURED = frozenset(("ari", "nmi", "purity", "sizes", "nearest", "margins"))
"""Measures that records hold for every clustering; a clusterer's notes may not use these names."""
TRUSTED = "trusted"
"""Key in the server's state of how far clients' labels are trusted ``[K]``, 0 to 1; absent where all are."""


@dataclass(frozen=True, eq=False)
class GroupingInput:
    """What a grouping can make the groups of a round from."""

    round: int
    """r, counted from 0."""
    clients: int
    """K."""
    state: State
    """The server's state; after round 0 it holds ``labels [K]``, the groups of the previous round."""
    choices: Mapping[int, int]
    """By client, the group it chose in this round; for clients that took part, in methods where they choose."""
    cluster: Callable[[], Tensor]
    """Computes the clusterer's groups ``[K]`` from the models just trained."""
    first_groups: Callable[[], Tensor]
    """Computes the aggregator's groups ``[K]`` for round 0, before clients can choose (`Aggregator.first_groups`)."""


class Grouping(ABC):
    """One kind of grouping; it holds no state, and two objects of the same class are equal."""

    name: ClassVar[str]
    """Its name in tables and messages."""
    description: ClassVar[str] = "makes its groups by itself"
    """What an aggregator of this kind does: follows "aggregator 'x'" in messages that refuse it or its clusterer."""
    needs_clusterer: ClassVar[bool] = False
    """Whether a clusterer makes the groups, once, from the models of round 0."""
    clients_choose: ClassVar[bool] = False
    """Whether clients upload the number of their group in every round after the first."""
    keeps_models_apart: ClassVar[bool] = False
    """Whether the server has a separate model for each client, which is not a mean of several."""

    @abstractmethod
    def assign(self, given: GroupingInput) -> Tensor:
        """Group of each client ``[K]`` int64 after a round, numbered from 0."""

    def makes_groups(self, first: bool) -> bool:
        """Whether a round makes groups that its record should compare with the true domains.

        Args:
            first: whether it is round 0.
        """
        return False

    def count_rows(self, clients: int, domains: int) -> int:
        """Approximate number of models at the server, to estimate memory before there are groups.

        Args:
            clients: K.
            domains: number of true domains, used as a guess at the number of groups.
        """
        return domains

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ByClusterer(Grouping):
    """A clusterer groups the clients once, after round 0."""

    name = "given"
    description = "averages groups of clients"
    needs_clusterer = True

    def assign(self, given: GroupingInput) -> Tensor:
        """The clusterer's groups in round 0, the same groups afterwards."""
        return given.state["labels"].clone() if given.round else given.cluster()

    def makes_groups(self, first: bool) -> bool:
        """True in round 0."""
        return first


class OneGroup(Grouping):
    """All clients are one group."""

    name = "one"
    description = "puts all clients in one group"

    def assign(self, given: GroupingInput) -> Tensor:
        """Group 0 for all clients."""
        return torch.zeros(given.clients, dtype=torch.int64)


class EachAlone(Grouping):
    """Each client is a group of its own."""

    name = "each"
    description = "keeps every client alone"
    keeps_models_apart = True

    def assign(self, given: GroupingInput) -> Tensor:
        """Groups 0 to K-1."""
        return torch.arange(given.clients)

    def count_rows(self, clients: int, domains: int) -> int:
        """One per client."""
        return clients


class ByChoice(Grouping):
    """Clients choose their group in every round after the first, in which the aggregator assigns them."""

    name = "self"
    description = "lets clients choose"
    clients_choose = True

    def assign(self, given: GroupingInput) -> Tensor:
        """The chosen group of each client that took part, the previous one of the others; in round 0 as assigned."""
        if not given.round:
            return given.first_groups()
        labels = given.state["labels"].clone()
        for client, choice in given.choices.items():
            labels[client] = choice
        return labels

    def makes_groups(self, first: bool) -> bool:
        """True in every round."""
        return True


GROUPINGS: Mapping[str, Grouping] = {kind.name: kind for kind in (ByClusterer(), OneGroup(), EachAlone(), ByChoice())}
"""The kinds that come with the library, by name."""


def check_labels(labels: Tensor, clients: int, name: str) -> Tensor:
    """A clusterer's labels on the CPU, checked: one for each client, numbered from 0 without gaps.

    Raises:
        FedwcaError: the labels are invalid.
    """
    valid = isinstance(labels, Tensor) and labels.shape == (clients,) and labels.dtype == torch.int64
    if not valid or (numbers := labels.unique().tolist()) != list(range(len(numbers))):
        description = labels.tolist() if valid else describe_value(labels)
        raise FedwcaError(
            f"clusterer {name!r} gave {description}; right would be {clients} int64 labels, 0 to C-1 without gaps"
        )
    return labels.cpu()


def check_notes(notes: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A clusterer's notes, checked: a record can hold them beside its own measures of the clusters.

    Raises:
        FedwcaError: it cannot; names the note.
    """
    if not isinstance(notes, Mapping):
        raise FedwcaError(
            f"clusterer {name!r}: notes gave {describe_value(notes)}; right is a mapping of names to values"
        )
    if reserved := sorted(MEASURED & notes.keys()):
        raise FedwcaError(f"clusterer {name!r} notes {reserved[0]!r}, which is measured of every clustering; rename it")
    for key, value in notes.items():
        try:
            json.dumps(to_plain(value))
        except (TypeError, ValueError):
            description = describe_value(value)
            raise FedwcaError(
                f"clusterer {name!r} notes {key!r} as {description}; right are plain values, as JSON has"
            ) from None
    return notes


def averaged_clients(labels: Tensor, present: Tensor, trusted: Tensor | None) -> Tensor:
    """Clients ``[K]`` bool whose models are averaged: those present that are trusted most in their group.

    Args:
        labels: group of each client ``[K]``.
        present: clients that took part ``[K]`` bool.
        trusted: how far each client is trusted ``[K]``, 0 to 1, absent ones included; None: all fully.

    >>> groups, here = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([True, True, True, False, True])
    >>> averaged_clients(groups, here, torch.tensor([1.0, 0.5, 0.0, 0.5, 0.0])).tolist()
    [True, False, False, False, True]
    """
    if trusted is None:
        return present
    return present & (trusted == most_trusted(labels, trusted))


def most_trusted(labels: Tensor, trusted: Tensor) -> Tensor:
    """The highest trust within the group of each client ``[K]``."""
    most = torch.zeros(int(labels.max()) + 1, dtype=trusted.dtype).scatter_reduce(0, labels, trusted, "amax")
    return most[labels]


def untrained_clients(labels: Tensor, trusted: Tensor) -> Tensor:
    """Clients ``[K]`` bool that are in groups in which no client trains.

    Args:
        labels: group of each client ``[K]``.
        trusted: how far each client is trusted ``[K]``, 0 to 1; a client at 0 does not train.

    >>> untrained_clients(torch.tensor([0, 0, 1, 1]), torch.tensor([0.0, 0.5, 0.0, 0.0])).tolist()
    [False, False, True, True]
    """
    return most_trusted(labels, trusted) == 0
