"""The kinds of components: what a new file has to provide, and the defaults it inherits.

A component is frozen and holds no state. It sees predictions, weights and signatures; never the engine, the
configuration, the data set or another component. All that others have to know of it they ask by what stands here, never
by its class or name; what is asked and not overridden has a default. In the order of a round:

===================  ==================================  ========================================  ====================
method               called by                           when                                      default
===================  ==================================  ========================================  ====================
`Aggregator`
``count_rows``       whoever estimates memory            before a run                              the grouping's
``initial_state``    the server                          before round 0                            nothing
``offer``            the server, for newcomers           each round but the first, at its start    the own cluster's row
``blend``            each client                         each round but the first, before training the own model
``expected``         the server that checks uploads      each round but the first                  ``reports``
``first``            the server                          round 0, where clients choose their group refused
``gather``           the server                          each round, after all uploads             means of clusters
``server_step``      the server                          each round, after ``gather``              ``gather``'s rows
``answer``           clients, also those without labels  each round, after ``gather``              nothing
``declares``         the server, before it reads them    each round, after ``gather``              nothing
``regather``         the server                          each round, after all answers             ``gather``'s weights
``learn``            the server                          each round, after all means               the labels
``deliver``          evaluation, export, final models    after each round                          the own cluster's row
``welcome``          evaluation of newcomers             after each round, and before the first    the first row
`Clusterer`
``__call__``         the server, where the grouping      round 0, after all uploads; before a run  must be there
                     needs one; a run's ``probes``       on made-up models, to fail early
``notes``            the server                          after ``__call__``                        nothing
``client_vectors``   newcomers, the record of round 0    after the last round; after round 0       None: nothing
`PseudoLabeler`
``trusts``           each client without labels          round 0, before training                  yes
``__call__``         each client without labels          before training; with ``renew = "epoch"`` must be there
                                                         before each epoch
`Objective`
``observe``          each client                         whenever it is labelled                   nothing
``__call__``         each client                         each step                                 must be there
``penalty``          each client                         each step                                 None: nothing
``collect``          each client                         each round, after training                nothing
``declares``         the server of a deployment          at its start                              nothing
``pool``             the server                          each round but the first, at its start    all, to everybody
``networks``         whoever makes models                before round 0                            none
`Adaptation`
``networks``         whoever makes models                before round 0                            none
``generators``       whoever makes models, if by_client  before round 0                            none
``generate``         each client, if by_client           each round, before training; at test time refused
``loss``             each client; with ``adapts``        each step at test time; each training     must be there
                     clients that train                  step
===================  ==================================  ========================================  ====================

What is a class variable or a property is read whenever somebody has to know: ``grouping``, ``travels``, ``reports``,
``references``, ``asks``, ``rows_are_models``, ``holds``, ``keeps``, ``infers_gradients`` and ``averages_groups`` of an
aggregator; ``oracle``, ``neighbour_metric``, ``norm_layers`` and ``layer_number`` of a clusterer; ``models``,
``renew``, ``mixes``, ``untrusted_weight`` and ``selects_clients`` of a labeler; ``anchors``, ``teachers``, ``views``,
``observes``, ``collects``, ``declares_uploads``, ``penalizes``, ``adapts``, ``feature_draws``, ``noise``, ``rates`` and
``stays`` of an objective; ``rates`` and ``by_client`` of an adaptation, which is in `fedwca.core.adaptation`.
``observes``, ``collects``, ``declares_uploads``, ``penalizes``, ``selects_clients``, ``averages_groups``,
``from_start`` and ``takes_step`` follow from which methods are overridden.

``answer``, ``declares`` and ``regather`` are called only where ``asks`` is set and some clients have labels and
others have none: the fresh mean is shown to all of them before it is final. Where ``initial_state`` is overridden
(``from_start``), ``offer``, ``blend`` and ``expected`` are asked in round 0 too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fedwca._deprecated import warn_renamed
from fedwca.core.grouping import GROUPINGS, ByClusterer, Grouping
from fedwca.core.messages import (
    Batch,
    Blend,
    Bounded,
    NormLayers,
    Offer,
    Predictions,
    Signatures,
    Simplex,
    State,
    Targets,
    View,
)
from fedwca.errors import UsageError
from fedwca.functional import Metric, cluster_means
from fedwca.registry import Component


class Clusterer(Component):
    """Groups the clients once, after the first local adaptation."""

    oracle: ClassVar[bool] = False
    """True: reads the true domains, which no real server knows; tables say so."""

    @abstractmethod
    def __call__(self, signatures: Signatures) -> Tensor:
        """Cluster of each client ``[K]`` int64, numbered 0..C-1 without gaps."""

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """What clients are compared by ``[K, …]``, and the distance; None where it compares nothing of theirs.

        Whoever comes later goes to the cluster of the client that is nearest in this.
        """
        return None

    @property
    def neighbour_metric(self) -> Metric | None:
        """Distance in which the record of round 0 says whose `client_vectors` are nearest; None: it does not say.

        Only for vectors that are read from models: a record is no place for what tells about images.
        """
        return None

    @property
    def norm_layers(self) -> NormLayers | None:
        """The BatchNorm layers whose `Signatures.moments` it reads, in place of models; None: it reads none.

        Clients of a real federation upload them once, and a newcomer needs no training to be placed.
        """
        return None

    @property
    def layer_number(self) -> int | None:
        """Number of the one layer it was told to read, from 1; None where it was told of none."""
        return None

    def notes(self, signatures: Signatures) -> Mapping[str, Any]:
        """Further plain values for the record of round 0; the sentence ``warning``, if any, is shown to users."""
        return {}


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
        """Take ``partition = "one"`` of classes that were written before it was called ``grouping = OneGroup()``.

        Raises:
            UsageError: there is no such word.
        """
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
        means = cluster_means(labels, clusters, sizes.double() if self.weighting == "samples" else None, present)
        idle = means.sum(1, keepdim=True) == 0
        kept = torch.eye(rows, dtype=means.dtype)[torch.arange(clusters) % rows]
        return torch.cat([kept * idle, means], 1)

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

    def regather(self, answers: Mapping[str, Tensor], gather: Tensor, present: Tensor, guests: Tensor) -> Tensor:
        """Next server rows as mixtures ``[C, R+K]`` of (previous rows, clients), by what clients said of fresh ones.

        Args:
            answers: by name ``[K, …]``; NaN of those that are neither present nor guests.
            gather: mixtures that the fresh rows are ``[C, R+K]``.
            present: clients whose models and answers count ``[K]`` bool; at least one.
            guests: clients without a model whose answers count ``[K]`` bool; at least one.
        """
        return gather

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The models each client is sent at the start of a round: its own cluster's.

        Args:
            state: what `learn` returned last.
            round: r, at least 1.
            rows: trained parameters of the server's rows ``[R, P]``, without BatchNorm statistics.
        """
        own = one_hot(state["labels"], rows.shape[0]).double()
        return Offer(personal=own[:, None], shared=torch.zeros(0, rows.shape[0], dtype=torch.float64))

    def blend(self, round: int, view: View) -> Blend:
        """What a client begins from and compares with; called in round 0 only where ``from_start``."""
        return Blend(view.own)

    def expected(self, round: int) -> Mapping[str, Simplex | Bounded]:
        """What clients must report in a round in which `blend` is asked."""
        return self.reports

    def learn(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """What the server remembers for the next round; ``report`` is empty where `blend` was not asked."""
        return {"labels": labels}

    def deliver(self, state: State, rows: int) -> Tensor:
        """The model each client ends with ``[K, R]``: its cluster's."""
        return one_hot(state["labels"], rows).double()

    def welcome(self, rows: int, draws: Tensor) -> Tensor:
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
        """
        raise NotImplementedError(f"{type(self).__name__} lets clients choose, but says nothing for round 0")


class PseudoLabeler(Component):
    """Decides from models' predictions what each unlabeled sample is trained towards."""

    models: ClassVar[tuple[str, ...]] = ("start",)
    """The models whose predictions it reads: ``start`` and names of the aggregator's references."""

    renew: Literal["round", "epoch"] = "round"
    """Labels are made once per round and kept, or anew before each epoch from the model as it then is."""

    @property
    def mixes(self) -> bool:
        """False: no image is ever mixed with another, so that engines need not look; True where that is open."""
        return True

    @property
    def selects_clients(self) -> bool:
        """Whether it may trust some clients and others not, which takes a pass of the source model over all images."""
        return type(self).trusts is not PseudoLabeler.trusts

    @property
    def untrusted_weight(self) -> float:
        """Factor of an untrusted client's weights. 0: it does not train; what it is sent stays as it is but for
        BatchNorm's statistics, which are re-estimated on its images.
        """
        return 0.0

    def trusts(self, source: Predictions) -> Tensor:
        """Whether a client may train towards labels ``[]`` bool; asked once, before round 0, and kept for all rounds.

        A group with trusted clients is averaged over those alone.

        Args:
            source: what the source model says of the client's images.
        """
        return torch.ones((), dtype=torch.bool, device=source.logits.device)

    @abstractmethod
    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor, mask: Tensor | None = None) -> Targets:
        """Targets of one client's N samples.

        Args:
            predictions: by name of the model; logits ``[N, M]`` and features ``[N, q]``, in eval mode, plain images.
            draws: uniform numbers in [0, 1) ``[N]``, for whatever is drawn per sample.
            mask: 1 for real samples, 0 for padding ``[N]``.
        """


class Objective(Component):
    """What one client minimises; several add up."""

    anchors: ClassVar[tuple[str, ...]] = ()
    """References whose parameters `penalty` compares with."""
    teachers: ClassVar[tuple[str, ...]] = ()
    """References whose predictions of the plain images a batch carries."""
    views: ClassVar[tuple[Literal["plain", "weak", "strong"], ...]] = ("plain",)
    """Views of the images it reads; plain and weak are the images as training shows them, strong distorted ones."""
    adapts: ClassVar[bool] = False
    """Whether it reads ``batch.adapted_logits``: training then goes through a step of the method's adaptation."""
    on: ClassVar[Literal["own", "public"]] = "own"
    """Images it is minimised on: the client's own, or public ones; see `fedwca.core.public_objective`."""
    noise: ClassVar[int] = 0
    """Uniform numbers that it reads of each image in ``batch.noise``."""
    stays: ClassVar[tuple[str, ...]] = ()
    """Those of its `networks` that no model takes along: each client keeps and trains its own."""

    @property
    def feature_draws(self) -> int:
        """Draws of the features whose mean softmax is a prediction. Training draws once a step and image, from what is
        in ``batch.latent``. 0: features are not drawn.
        """
        return 0

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """Extra networks by name, freshly initialised, which it reads in ``batch.networks``: trained with the model,
        and sent with it unless they stay. They have no buffers, and draw nothing at random.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def rates(self) -> dict[str, float]:
        """Learning rate of each of them; one that is not named has the base network's."""
        return {}

    @property
    def observes(self) -> bool:
        """Whether there is something to `observe`, which takes a pass over all images."""
        return type(self).observe is not Objective.observe

    @property
    def penalizes(self) -> bool:
        """Whether there is a `penalty`, which takes a gradient of its own."""
        return type(self).penalty is not Objective.penalty

    @property
    def collects(self) -> bool:
        """Whether there is something to `collect`, which takes a pass over all images and is uploaded."""
        return type(self).collect is not Objective.collect

    @property
    def declares_uploads(self) -> bool:
        """Whether a server can know what `collect` may upload."""
        return type(self).declares is not Objective.declares

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """Loss of one batch ``[]`` in nats; 0 for an objective that is a penalty alone."""

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """What it has to know of all of a client's images, measured whenever they are labelled; comes with each batch.

        Args:
            predictions: of the model that is trained, as it then is.
        """
        return {}

    def collect(self, predictions: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """What a client uploads beside its model after training, by name; each the same shape at every client.

        Args:
            predictions: of the trained model, in eval mode, plain images.
            targets: of the last epoch.
        """
        return {}

    def declares(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """What `collect` uploads, by name, so that a server can refuse what does not fit; needed for real federations.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def pool(self, collected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What the server sends everybody of what was collected; reaches `__call__` as ``batch.shared``.

        Args:
            collected: what each client uploaded last, by the names `collect` gave, ``[K, …]``; zeros for one that never
                did.
        """
        return collected

    def penalty(self, parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor | None:
        """Loss of the model itself ``[]``, differentiable; None for none.

        Args:
            parameters: the client's trained parameters ``[P]``, without BatchNorm statistics.
            anchors: the same of the references named in ``anchors``.
        """
        return None
