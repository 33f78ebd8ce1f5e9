"""The base class of aggregators: which models the server averages and sends to whom, expressed as weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca._deprecated import warn_renamed
from fedwca.component import Component
from fedwca.core.component_answers import check_client_weights, only_reads
from fedwca.core.grouping import GROUPINGS, ByClusterer, Grouping
from fedwca.core.messages import Blend, Bounded, Offer, Predictions, Simplex, State, View
from fedwca.errors import FedwcaError, UsageError
from fedwca.functional import cluster_means


class _OldPartition:
    """The old attribute ``partition``: the name of the class's `Aggregator.grouping`, read with a warning."""

    def __get__(self, instance: Aggregator | None, owner: type[Aggregator]) -> str:
        warn_renamed(f"{owner.__name__}.partition", f"{owner.__name__}.grouping.name")
        return owner.grouping.name


class Aggregator(Component):
    """Gives the weights by which the server mixes clients' models and clients mix the server's models.

    The server's methods (`gather`, `offer`, `next_state`, `deliver`) see small float64 matrices; `blend` runs at a
    client and may use only what that client was sent. In round 0 all clients start from the source model, the server's
    only row; where `initial_state` is overridden, `offer` and `blend` are called in round 0 too.
    """

    grouping: ClassVar[Grouping] = ByClusterer()
    """Who is averaged with whom; the kinds are in `fedwca.core.grouping`."""
    partition: ClassVar[str] = _OldPartition()  # type: ignore[assignment]
    """Old name of ``grouping``; its values are the words given, one, each and self."""
    sends_models: ClassVar[bool] = True
    """False: no model is sent in either direction after round 0."""
    reports: ClassVar[Mapping[str, Simplex | Bounded]] = {}
    """Values that `blend` uploads beside the model, by name, so that a server can refuse invalid ones."""
    references: ClassVar[tuple[str, ...]] = ("start", "cluster", "source")
    """Models that labelers and objectives may name: these three always exist, and `blend` may give others."""

    queries_clients: ClassVar[bool] = False
    """Whether clients evaluate the new mean before it is final; see `answer`."""
    rows_are_models: ClassVar[bool] = True
    """False: server rows after the first may be any linear combinations of models, such as differences."""
    cached_models: ClassVar[int] = 0
    """How many of the last personal models of an offer a client has from earlier rounds, so that they are not sent."""
    local_layers: ClassVar[int] = 0
    """How many last layers stay with their client. If any do, the server has a row for each client, in their order."""
    infers_gradients: ClassVar[bool] = False
    """Whether a client's mean gradient is taken to be its movement over (steps · learning rate); see `gather`."""

    weighting: Literal["uniform", "samples"] = "uniform"
    """How a cluster's mean weighs its clients: all equally, or by their number of training images."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Check ``grouping``, and accept its old form, such as ``partition = "one"``.

        Raises:
            UsageError: ``grouping`` is no `Grouping` object, or ``partition`` is an unknown word.
        """
        super().__pydantic_init_subclass__(**kwargs)
        grouping: object = cls.grouping
        if not isinstance(grouping, Grouping):
            description = getattr(grouping, "__name__", repr(grouping))
            raise UsageError(f"{cls.__name__}.grouping is {description}; right is an object, such as OneGroup()")
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
        """Whether server rows are just the means of their groups, so that another mean may replace them."""
        return type(self).gather is Aggregator.gather and not self.has_server_step

    @property
    def has_server_step(self) -> bool:
        """Whether `server_step` is overridden, which reads all clients' models."""
        return type(self).server_step is not Aggregator.server_step

    @property
    def offers_in_round_0(self) -> bool:
        """Whether `offer` and `blend` are called in round 0 too, when the server's only row is the first model."""
        return type(self).initial_state is not Aggregator.initial_state

    def count_rows(self, clients: int, domains: int) -> int:
        """Approximate number of server rows, to estimate memory before there are groups.

        Args:
            clients: K.
            domains: number of true domains.
        """
        return self.grouping.count_rows(clients, domains)

    def initial_state(self, clients: int) -> State:
        """The server's state before round 0, as `next_state` returns it; by default empty.

        Args:
            clients: K.
        """
        return {}

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """Next server rows, as weights ``[C, R+K]`` of (previous rows, clients): the mean of each cluster.

        Args:
            state: what `next_state` returned last; in round 0 `initial_state`. Where ``infers_gradients``, also ``moved
                [K]``: the number of steps each client took in this round times their learning rate; 0 if absent.
            labels: cluster of each client ``[K]``.
            sizes: number of training images of each client ``[K]``.
            present: clients that took part in this round ``[K]`` bool.
            rows: R, the number of previous rows; a cluster without a present client keeps its own row.
        """
        clusters = max(int(labels.max()) + 1, rows)
        means = cluster_means(labels, clusters, checked_client_weights(self, sizes), present)
        idle = means.sum(1, keepdim=True) == 0
        previous = torch.eye(rows, dtype=means.dtype)[torch.arange(clusters) % rows]
        return torch.cat([previous * idle, means], 1)

    def client_weights(self, sizes: Tensor) -> Tensor:
        """Weight of each client in a mean ``[K]``, by ``weighting``: finite, at least 0 and not all 0.

        Args:
            sizes: number of training images of each client ``[K]``.
        """
        return sizes.double() if self.weighting == "samples" else torch.ones_like(sizes, dtype=torch.float64)

    def server_step(self, rows: Tensor, mixed: Tensor, weights: Tensor, models: Tensor) -> Tensor:
        """Next server rows ``[C, P]``, where they are more than mixtures; trained parameters only.

        BatchNorm statistics are always those of the mixtures. Another machine that repeats the step must get the same
        bits, so use elementwise products and sums only.

        Args:
            rows: previous server rows ``[R, P]``.
            mixed: mixtures of these and the clients' models by `gather`'s weights ``[C, P]``; may be changed in place.
            weights: `gather`'s weights of the clients ``[C, K]``.
            models: the clients' models ``[K, P]``; for absent clients, the ones they had.
        """
        return mixed

    def answer(self, predictions: Predictions, labels: Tensor | None) -> Mapping[str, Tensor]:
        """A client's evaluation of the new mean: tensors by name, of the shapes that `answer_bounds` gives.

        Args:
            predictions: the new mean's, of the client's plain training images, in eval mode.
            labels: labels of these images ``[N]``; None for a client that has none.
        """
        return {}

    def answer_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """Shapes and bounds of what `answer` gives, by name, so that a server can refuse invalid answers.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def regather(self, answers: Mapping[str, Tensor], gather: Tensor, present: Tensor, unlabeled: Tensor) -> Tensor:
        """Next server rows, as weights ``[C, R+K]`` of (previous rows, clients), by the clients' answers.

        Args:
            answers: clients' answers, by name ``[K, …]``; NaN for clients that are neither present nor unlabeled.
            gather: weights of the new rows ``[C, R+K]``.
            present: clients whose models and answers count ``[K]`` bool; at least one.
            unlabeled: clients without a model whose answers count ``[K]`` bool; at least one.
        """
        return gather

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The models each client is sent at the start of a round: its own cluster's.

        Args:
            state: what `next_state` returned last.
            round: r, at least 1.
            rows: trained parameters of the server's rows ``[R, P]``, without BatchNorm statistics.
        """
        return Offer.of_personal(self._cluster_rows(state, rows.shape[0]))

    def blend(self, round: int, view: View) -> Blend:
        """The models a client starts from and compares with; called in round 0 only where ``offers_in_round_0``."""
        return Blend(view.own)

    def expected_reports(self, round: int) -> Mapping[str, Simplex | Bounded]:
        """Values that clients must report in a round in which `blend` is called."""
        return self.reports

    def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """The server's state for the next round.

        Args:
            state: what `next_state` returned last; in round 0 `initial_state`.
            labels: cluster of each client ``[K]``.
            report: clients' reported values, by name ``[K, …]``; empty where `blend` was not called.
            present: clients ``[K]`` bool whose reports count; without `reports`, those that were averaged.
        """
        return {"labels": labels}

    def deliver(self, state: State, rows: int) -> Tensor:
        """The model each client ends with, as weights of the server's rows ``[K, R]``: its cluster's."""
        return self._cluster_rows(state, rows)

    def _cluster_rows(self, state: State, rows: int) -> Tensor:
        """The row of each client's cluster, as weights ``[K, R]``."""
        try:
            return one_hot(state["labels"], rows).double()
        except RuntimeError as error:
            raise FedwcaError(
                f"aggregator {self.name!r}: gather gave {rows} rows, too few for clusters 0 to "
                f"{int(state['labels'].max())}; right is one for each, or an offer and a deliver of its own"
            ) from error

    def deliver_new(self, rows: int, draws: Tensor) -> Tensor:
        """The model each newcomer is sent, as weights of the server's rows ``[K', R]``: the first row.

        Args:
            rows: R.
            draws: uniform numbers in [0, 1) ``[K']``; a newcomer's is the same in all rounds.
        """
        return one_hot(torch.zeros(len(draws), dtype=torch.int64), rows).double()

    def first_groups(self, clients: int, draws: Tensor) -> Tensor:
        """Cluster of each client ``[K]`` in round 0, for methods in which clients choose their own afterwards.

        Args:
            clients: K.
            draws: uniform numbers in [0, 1) ``[K]``.

        Raises:
            UsageError: the class lets clients choose, but does not override this method.
        """
        raise UsageError(f"aggregator {self.name!r} lets clients choose, and has no `first_groups` for round 0")


def checked_client_weights(aggregator: Aggregator, sizes: Tensor) -> Tensor:
    """Weight of each client in a mean ``[K]`` float64; see `Aggregator.client_weights`.

    Raises:
        FedwcaError: the answer is no such weights, or sizes were changed in place.
    """
    component = f"aggregator {aggregator.name!r}: client_weights"
    with only_reads(component, sizes):
        weights = aggregator.client_weights(sizes)
    return check_client_weights(weights, len(sizes), component)
