"""Kinds of grouping: who is averaged with whom, and what follows from it for everybody who has to know.

Each kind is one object. Server, records, memory estimates, deployment and newcomers ask it and never its name, so that
a family of methods with another kind writes one class, and its aggregators say ``grouping = ThatClass()``.
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
"""What a record says of every clustering, which no clusterer's note may stand for."""
TRUSTED = "trusted"
"""How a server's state calls how far clients' labels are trusted ``[K]``, 0 to 1; not there where all are."""


@dataclass(frozen=True, eq=False)
class GroupingInput:
    """What the groups of a round can be made of."""

    round: int
    """r, counted from 0."""
    clients: int
    """K."""
    state: State
    """What the server remembers; after round 0 with ``labels [K]``, the groups of the round before."""
    choices: Mapping[int, int]
    """By client: the group it chose in this round; of those that took part, and where they choose."""
    cluster: Callable[[], Tensor]
    """The clusterer's groups ``[K]`` of the models just trained."""
    deal: Callable[[], Tensor]
    """The aggregator's groups ``[K]`` before anybody could choose (`Aggregator.first`)."""


class Grouping(ABC):
    """One kind of grouping; it holds no state, and two of one class are equal."""

    name: ClassVar[str]
    """The word for it in tables and sentences."""
    instead: ClassVar[str] = "makes its groups by itself"
    """What an aggregator of this kind does, as in "aggregator 'x' …", where a clusterer is given that it cannot use."""
    needs_clusterer: ClassVar[bool] = False
    """Whether a clusterer makes the groups, once, of the models of round 0."""
    clients_choose: ClassVar[bool] = False
    """Whether clients upload the number of their group in every round after the first."""
    keeps_models_apart: ClassVar[bool] = False
    """Whether each client has a model of its own at the server, which is no mean of several."""

    @abstractmethod
    def assign(self, given: GroupingInput) -> Tensor:
        """Group of each client ``[K]`` int64 after a round, numbered from 0."""

    def makes_groups(self, first: bool) -> bool:
        """Whether a round finds groups that may be right or wrong, so that its record compares them with the truth.

        Args:
            first: whether it is round 0.
        """
        return False

    def rows(self, clients: int, domains: int) -> int:
        """Models that the server will about hold, to estimate memory before there are groups.

        Args:
            clients: K.
            domains: true domains, as good a guess at the number of groups as any.
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
    needs_clusterer = True

    def assign(self, given: GroupingInput) -> Tensor:
        """The clusterer's groups, kept."""
        return given.state["labels"].clone() if given.round else given.cluster()

    def makes_groups(self, first: bool) -> bool:
        """In round 0."""
        return first


class OneGroup(Grouping):
    """All clients are one group."""

    name = "one"
    instead = "puts all clients in one group"

    def assign(self, given: GroupingInput) -> Tensor:
        """Zeros."""
        return torch.zeros(given.clients, dtype=torch.int64)


class EachAlone(Grouping):
    """Each client is a group of its own."""

    name = "each"
    instead = "keeps every client alone"
    keeps_models_apart = True

    def assign(self, given: GroupingInput) -> Tensor:
        """0 to K-1."""
        return torch.arange(given.clients)

    def rows(self, clients: int, domains: int) -> int:
        """One a client."""
        return clients


class ByChoice(Grouping):
    """Clients choose their group in every round after the first, in which the aggregator deals them out."""

    name = "self"
    instead = "lets clients choose"
    clients_choose = True

    def assign(self, given: GroupingInput) -> Tensor:
        """Those that took part where they went, the others where they were."""
        if not given.round:
            return given.deal()
        labels = given.state["labels"].clone()
        for client, choice in given.choices.items():
            labels[client] = choice
        return labels

    def makes_groups(self, first: bool) -> bool:
        """Always."""
        return True


GROUPINGS: Mapping[str, Grouping] = {kind.name: kind for kind in (ByClusterer(), OneGroup(), EachAlone(), ByChoice())}
"""The kinds that come with the library, by name."""


def check_labels(labels: Tensor, clients: int, name: str) -> Tensor:
    """A clusterer's labels, if they are one for each client, numbered from 0 without gaps.

    Raises:
        FedwcaError: they are not.
    """
    right = isinstance(labels, Tensor) and labels.shape == (clients,) and labels.dtype == torch.int64
    if not right or labels.unique().tolist() != list(range(int(labels.max()) + 1)):
        given = labels.tolist() if isinstance(labels, Tensor) else describe_value(labels)
        raise FedwcaError(
            f"clusterer {name!r} gave {given}; right would be {clients} int64 labels, 0 to C-1 without gaps"
        )
    return labels.cpu()


def check_notes(notes: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a clusterer notes, where a record can hold it beside what is measured of its clusters.

    Raises:
        FedwcaError: it cannot; says which note.
    """
    if taken := sorted(MEASURED & notes.keys()):
        raise FedwcaError(f"clusterer {name!r} notes {taken[0]!r}, which is measured of every clustering; rename it")
    for key, value in notes.items():
        try:
            json.dumps(to_plain(value))
        except (TypeError, ValueError):
            shown = describe_value(value)
            raise FedwcaError(
                f"clusterer {name!r} notes {key!r} as {shown}; right are plain values, as JSON has"
            ) from None
    return notes


def averaged_clients(labels: Tensor, present: Tensor, trusted: Tensor | None) -> Tensor:
    """Clients ``[K]`` bool whose models are averaged: those that are trusted most in their group.

    Args:
        labels: group of each client ``[K]``.
        present: clients that took part ``[K]`` bool.
        trusted: how far ``[K]``, 0 to 1, absent ones included; None: all are.

    >>> groups, here = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([True, True, True, False, True])
    >>> averaged_clients(groups, here, torch.tensor([1.0, 0.5, 0.0, 0.5, 0.0])).tolist()
    [True, False, False, False, True]
    """
    if trusted is None:
        return present
    return present & (trusted == most_trusted(labels, trusted))


def most_trusted(labels: Tensor, trusted: Tensor) -> Tensor:
    """How far the most trusted client of each client's group is trusted ``[K]``."""
    most = torch.zeros(int(labels.max()) + 1, dtype=trusted.dtype).scatter_reduce(0, labels, trusted, "amax")
    return most[labels]


def untrained_clients(labels: Tensor, trusted: Tensor) -> Tensor:
    """Clients ``[K]`` bool of groups in which nobody trains.

    Args:
        labels: group of each client ``[K]``.
        trusted: how far ``[K]``, 0 to 1; a client at 0 does not train.

    >>> untrained_clients(torch.tensor([0, 0, 1, 1]), torch.tensor([0.0, 0.5, 0.0, 0.0])).tolist()
    [False, False, True, True]
    """
    return most_trusted(labels, trusted) == 0
