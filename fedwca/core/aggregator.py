"""What an aggregator provides: in weights alone, which models the server averages and what it sends to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca._deprecated import warn_renamed
from fedwca.core.grouping import GROUPINGS, ByClusterer, Grouping
from fedwca.core.messages import Blend, Bounded, Offer, Predictions, Simplex, State, View
from fedwca.errors import UsageError
from fedwca.functional import cluster_means
from fedwca.registry import Component


class _OldPartition:
    """Reads `Aggregator.grouping` under the name it had before, as the word it was."""

    def __get__(self, instance: Aggregator | None, owner: type[Aggregator]) -> str:
        warn_renamed(f"{owner.__name__}.partition", f"{owner.__name__}.grouping.name")
        return owner.grouping.name


class Aggregator(Component):
    """Says, in weights alone, how clients' models become the server's and the server's models the clients'.

    Server-side methods (`gather`, `offer`, `learn`, `deliver`) see small float64 matrices; `blend` is what a client
    does and may use only what that client was sent. In round 0 everybody starts from the source model, the server's
    only row, unless `initial_state` says what is remembered by then.
    """

    grouping: ClassVar[Grouping] = ByClusterer()
    """Who is averaged with whom; the kinds are in `fedwca.core.grouping`."""
    partition: ClassVar[str] = _OldPartition()  # type: ignore[assignment]
    """Old name of ``grouping``, with the words given, one, each and self."""
    travels: ClassVar[bool] = True
    """False: after round 0 no model is sent either way."""
    reports: ClassVar[Mapping[str, Simplex | Bounded]] = {}
    """What `blend` uploads beside the model, so that a server can refuse what does not fit."""
    references: ClassVar[tuple[str, ...]] = ("start", "cluster", "source")
    """Models that labelers and objectives may name: what `blend` gives beside the three that are always there."""

    asks: ClassVar[bool] = False
    """Whether clients judge the fresh mean before it is final; see `answer`."""
    rows_are_models: ClassVar[bool] = True
    """False: server rows behind the first may be sums of models with any weights, such as differences."""
    holds: ClassVar[int] = 0
    """Personal models of an offer, the last ones, that a client has from its earlier rounds, so that none is sent."""
    keeps: ClassVar[int] = 0
    """Last layers that stay with their client, of which there is a row each: rows are the clients' models, in order."""
    infers_gradients: ClassVar[bool] = False
    """Whether it takes how far a client moved, over how far its steps reach, for its mean gradient; see `gather`."""

    weighting: Literal["uniform", "samples"] = "uniform"
    """How a cluster's mean weighs its clients: all alike, or by their number of training images."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Check ``grouping``; take ``partition = "one"`` of classes that were written before it was called so.

        Raises:
            UsageError: it is no grouping, or there is no such word.
        """
        given: object = cls.grouping
        if not isinstance(given, Grouping):
            shown = getattr(given, "__name__", repr(given))
            raise UsageError(f"{cls.__name__}.grouping is {shown}; right is an object, such as OneGroup()")
        word = vars(cls).get("partition")
        if word is None:
            return
        if word not in GROUPINGS:
            raise UsageError(f"{cls.__name__}.partition is {word!r}; there are {', '.join(GROUPINGS)}")
        cls.grouping = GROUPINGS[word]
        del cls.partition
        warn_renamed(f'{cls.__name__}.partition = "{word}"', f"grouping = fedwca.core.grouping.{cls.grouping!r}")

    @property
    def averages_groups(self) -> bool:
        """Whether server rows are the means of their groups, so that another mean may stand in for them."""
        return type(self).gather is Aggregator.gather and not self.takes_step

    @property
    def takes_step(self) -> bool:
        """Whether there is a `server_step`, which reads all clients' models."""
        return type(self).server_step is not Aggregator.server_step

    @property
    def from_start(self) -> bool:
        """Whether `offer` and `blend` are asked in round 0 too, when the server's only row is the first model."""
        return type(self).initial_state is not Aggregator.initial_state

    def count_rows(self, clients: int, domains: int) -> int:
        """Rows that the server will about hold, to estimate memory before there are groups.

        Args:
            clients: K.
            domains: true domains.
        """
        return self.grouping.rows(clients, domains)

    def initial_state(self, clients: int) -> State:
        """What the server remembers before round 0, in the form `learn` returns; nothing.

        Args:
            clients: K.
        """
        return {}

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """Next server rows as mixtures ``[C, R+K]`` of (previous rows, clients): the mean of each cluster.

        Args:
            state: what `learn` returned last; in round 0 `initial_state`. Where ``infers_gradients``, also ``moved
                [K]``: steps that each client took in this round times their learning rate, 0 of one that is absent.
            labels: cluster of each client ``[K]``.
            sizes: training images of each client ``[K]``.
            present: clients that took part in this round ``[K]`` bool.
            rows: R, previous rows; a cluster without a present client keeps its own row.
        """
        clusters = max(int(labels.max()) + 1, rows)
        means = cluster_means(labels, clusters, self.client_weights(sizes), present)
        idle = means.sum(1, keepdim=True) == 0
        kept = torch.eye(rows, dtype=means.dtype)[torch.arange(clusters) % rows]
        return torch.cat([kept * idle, means], 1)

    def client_weights(self, sizes: Tensor) -> Tensor | None:
        """What a mean weighs clients by ``[K]``, as ``weighting`` says; None weighs all alike.

        Args:
            sizes: training images of each client ``[K]``.
        """
        return sizes.double() if self.weighting == "samples" else None

    def server_step(self, rows: Tensor, mixed: Tensor, weights: Tensor, models: Tensor) -> Tensor:
        """Next server rows ``[C, P]``, where they are more than mixtures; trained parameters alone.

        BatchNorm statistics are those of the mixtures, whatever this does. Whoever repeats it on another machine has
        to come to the same bits, so that it multiplies and adds entry by entry.

        Args:
            rows: previous ones ``[R, P]``.
            mixed: what `gather`'s weights make of them and of the clients' models ``[C, P]``; may be changed in place.
            weights: `gather`'s of the clients ``[C, K]``.
            models: the clients' ``[K, P]``; of those that were absent, what they had.
        """
        return mixed

    def answer(self, predictions: Predictions, labels: Tensor | None) -> Mapping[str, Tensor]:
        """What a client says of the fresh mean, by name: of a shape that `declares` gives.

        Args:
            predictions: of its training images by that mean, in eval mode, plain images.
            labels: of these images ``[N]``; None of a client that has none.
        """
        return {}

    def declares(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """What `answer` gives, by name, so that a server can refuse what does not fit.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def regather(self, answers: Mapping[str, Tensor], gather: Tensor, present: Tensor, unlabeled: Tensor) -> Tensor:
        """Next server rows as mixtures ``[C, R+K]`` of (previous rows, clients), by what clients said of fresh ones.

        Args:
            answers: by name ``[K, …]``; NaN of those that are neither present nor unlabeled.
            gather: mixtures that the fresh rows are ``[C, R+K]``.
            present: clients whose models and answers count ``[K]`` bool; at least one.
            unlabeled: clients without a model whose answers count ``[K]`` bool; at least one.
        """
        return gather

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The models each client is sent at the start of a round: its own cluster's.

        Args:
            state: what `learn` returned last.
            round: r, at least 1.
            rows: trained parameters of the server's rows ``[R, P]``, without BatchNorm statistics.
        """
        return Offer.of_personal(one_hot(state["labels"], rows.shape[0]).double())

    def blend(self, round: int, view: View) -> Blend:
        """What a client begins from and compares with; called in round 0 only where ``from_start``."""
        return Blend(view.own)

    def expected(self, round: int) -> Mapping[str, Simplex | Bounded]:
        """What clients must report in a round in which `blend` is asked."""
        return self.reports

    def learn(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """What the server remembers for the next round.

        Args:
            state: what it returned last; in round 0 empty.
            labels: cluster of each client ``[K]``.
            report: of each client, by name ``[K, …]``; empty where `blend` was not asked.
            present: clients ``[K]`` bool whose reports count; where nothing is reported, those in a mean.
        """
        return {"labels": labels}

    def deliver(self, state: State, rows: int) -> Tensor:
        """The model each client ends with ``[K, R]``: its cluster's."""
        return one_hot(state["labels"], rows).double()

    def deliver_new(self, rows: int, draws: Tensor) -> Tensor:
        """The model that each newcomer is sent ``[K', R]``, of the server's rows: the first.

        Args:
            rows: R.
            draws: uniform numbers in [0, 1) ``[K']``, of each newcomer the same in all rounds.
        """
        return one_hot(torch.zeros(len(draws), dtype=torch.int64), rows).double()

    def first(self, clients: int, draws: Tensor) -> Tensor:
        """Cluster of each client ``[K]`` in round 0, where clients choose their own from then on.

        Args:
            clients: K.
            draws: uniform numbers in [0, 1) ``[K]``.

        Raises:
            UsageError: a class that lets clients choose has no such method of its own.
        """
        raise UsageError(f"aggregator {self.name!r} lets clients choose, and has no `first` for round 0")
