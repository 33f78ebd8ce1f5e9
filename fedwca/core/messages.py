"""The values exchanged between server, clients and components, and the queries that a component may make.

Axes: K clients, Q personal and S shared models sent to a client, R rows on the server, P parameters of one model,
N samples of a client, B samples of a batch, M classes, q features, C clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fedwca.core.adaptation import ExtraNetworks

State = Mapping[str, Tensor]
"""The server's state between rounds: tensors by name, so that a checkpoint can hold it."""

NormLayers = Literal["bottleneck", "all"]
"""The BatchNorm layers whose inputs are measured: the bottleneck's, or all."""


@dataclass(frozen=True)
class Offer:
    """The models each client is sent, as mixtures of the server's rows; each mixture sums to 1."""

    personal: Tensor
    """``[K, Q, R]``; the first is ``View.own``: with a clusterer's groups the cluster's model, which is also
    evaluated."""
    shared: Tensor
    """``[S, R]``; the same for all clients."""

    @classmethod
    def of_personal(cls, weights: Tensor) -> Offer:
        """An offer of each client's personal models ``[K, Q, R]``, or one for each ``[K, R]``, and no shared models.

        >>> Offer.of_personal(torch.eye(3)).personal.shape
        torch.Size([3, 1, 3])
        """
        personal = weights if weights.ndim == 3 else weights[:, None]
        return cls(personal, personal.new_zeros(0, personal.shape[-1]))

    @property
    def models_per_client(self) -> int:
        """Number of models that are sent to one client."""
        return self.personal.shape[1] + self.shared.shape[0]


@dataclass(frozen=True)
class Blend:
    """How a client mixes the models it was sent; columns are (personal…, shared…), rows sum to 1."""

    start: Tensor
    """``[K, Q+S]``: the model training begins from (f_init)."""
    references: Mapping[str, Tensor] = field(default_factory=dict)
    """Further models to compare with, by name, each ``[K, Q+S]``; a name that is not set is the client's own model."""
    report: Mapping[str, Tensor] = field(default_factory=dict)
    """Values uploaded beside the model, each ``[K, …]``, as declared in the aggregator's ``reports``."""
    labels: Tensor | None = None
    """``[K]``: the cluster each client chose, in methods where clients choose."""
    notes: Mapping[str, Tensor] = field(default_factory=dict)
    """Further values for diagnostics, each ``[K, …]``; they stay at the client."""


@dataclass(frozen=True)
class Simplex:
    """A reported vector whose entries are at least 0 and sum to 1."""

    size: int | None = None
    """Number of entries; None: as many as there are shared models."""


@dataclass(frozen=True)
class Bounded:
    """An uploaded tensor of a known shape, whose vectors along the last axis are not longer than a bound."""

    shape: tuple[int, ...]
    """Shape of one client's tensor, without the axis of clients."""
    max_norm: float
    """Largest L2 norm of a vector."""


@dataclass(frozen=True)
class Predictions:
    """Outputs of one model on one client's samples."""

    logits: Tensor
    """``[N, M]``"""
    features: Tensor
    """``[N, q]``, the input of the classifier."""
    adapted_logits: Tensor | None = None
    """``[N, M]``, logits after a step of the method's adaptation on all these samples; None: not computed."""

    @property
    def probabilities(self) -> Tensor:
        """``[N, M]``, softmax of the logits (h(x) in the paper)."""
        return self.logits.softmax(-1)


@dataclass(frozen=True)
class Targets:
    """Training targets of a client's samples, for one round or one epoch."""

    labels: Tensor
    """``[N]`` int64: the selected pseudo-label."""
    weights: Tensor
    """``[N]`` in [0, 1]: weight of the sample's cross-entropy term; 0 leaves it out."""
    partners: Tensor
    """``[N]`` int64: index of the sample mixed in; not read where ``partner_weights`` is 0."""
    partner_weights: Tensor
    """``[N]`` in [0, 1]: weight of the partner's image; 0 keeps the image as it is."""
    models_agree: Tensor
    """``[N]`` bool: whether the models that label the sample agree on the label."""
    notes: Mapping[str, Tensor] = field(default_factory=dict)
    """Further values for diagnostics; ``divisors``: divisors of similarities, unreliable where not above 0."""

    @classmethod
    def of_labels(cls, labels: Tensor, weights: Tensor | None = None) -> Self:
        """Targets of labels ``[N]`` without mixing, at weights ``[N]``; None: each at weight 1."""
        weights = torch.ones_like(labels, dtype=torch.float32) if weights is None else weights
        indices = torch.arange(len(labels), device=labels.device)
        return cls(labels, weights, indices, torch.zeros_like(weights), torch.ones_like(labels, dtype=torch.bool))

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same targets, with a function applied to each tensor."""
        labels, weights, partners = change(self.labels), change(self.weights), change(self.partners)
        notes = {name: change(value) for name, value in self.notes.items()}
        return type(self)(labels, weights, partners, change(self.partner_weights), change(self.models_agree), notes)


@dataclass(frozen=True)
class Latent:
    """The normal distributions with independent entries that features were drawn from."""

    mean: Tensor
    """``[B, q]``"""
    std: Tensor
    """``[B, q]``, above 0."""


@dataclass(frozen=True)
class Batch:
    """What an objective sees of one step."""

    logits: Tensor
    """``[B, M]`` of the plain images, as in training: with the network's own augmentation where it has one."""
    features: Tensor
    """``[B, q]`` of the same images."""
    target_logits: Tensor
    """``[B, M]`` of the images the labels belong to: the mixed image where there is one, else the plain one."""
    labels: Tensor
    """``[B]`` int64."""
    weights: Tensor
    """``[B]`` in [0, 1], as in `Targets`."""
    reference_logits: Mapping[str, Tensor] = field(default_factory=dict)
    """``[B, M]`` of the plain images by frozen models, by name; those that an objective's ``teachers`` names."""
    view_logits: Mapping[str, Tensor] = field(default_factory=dict)
    """``[B, M]`` of views of the same images, by name: ``plain`` and ``weak``; ``strong`` where an objective's
    ``views`` names it."""
    observed: Mapping[str, Tensor] = field(default_factory=dict)
    """Values that objectives measured on all of the client's images when these were last labelled
    (`Objective.observe`)."""
    pooled_uploads: Mapping[str, Tensor] = field(default_factory=dict)
    """What the server made of uploads that are not models (`Objective.pool`); empty in round 0."""
    adapted_logits: Tensor | None = None
    """As ``target_logits``, from the model after one differentiable step of the method's adaptation on the plain
    images. Without a step, as in `View.loss`, they are ``target_logits``. None: no objective ``adapts``."""
    latent: Latent | None = None
    """The distributions that ``features`` were drawn from. None: they were not drawn, because no objective has
    ``feature_draws``, or in `View.loss`."""
    networks: ExtraNetworks = field(default_factory=dict)
    """Extra networks by name, with the client's parameters; empty in `View.loss`."""
    frozen_networks: ExtraNetworks = field(default_factory=dict)
    """The same networks as constants: gradients flow through them to their inputs, but not to their parameters."""
    noise: Tensor | None = None
    """Uniform numbers in [0, 1) ``[B, n]``, n being the largest ``noise_per_image`` of an objective. None: no objective
    has any, or in `View.loss`."""


class View(Protocol):
    """What a client can measure of the models it was sent, for any mixtures of them.

    A view covers the K clients of a slice; row k of every result uses the data of client k alone. J is a number of
    mixtures.
    """

    @property
    def own(self) -> Tensor:
        """``[K, Q+S]``: the mixture that is the client's own model."""

    @property
    def shared(self) -> Tensor:
        """``[S, Q+S]``: one mixture for each shared model."""

    def model(self, column: int) -> Tensor:
        """``[K, Q+S]``: the mixture that is one of the models sent, counted from 0; ``own`` is ``model(0)``."""

    def alignment(self, mixtures: Tensor) -> Tensor:
        """``[J, Q+S] -> [K, J]``: mean cosine between features and the nearest classifier vector (I of eq. 1)."""

    def density(self, mixtures: Tensor) -> Tensor:
        """``[K, Q+S] -> [K]``: soft neighborhood density of the mixed model's outputs, in nats (eq. 6)."""

    def loss(self, mixtures: Tensor) -> Tensor:
        """``[J, Q+S] -> [K, J]``: the objectives' loss with the client's labels, or the mixed model's, in nats."""


class Signatures(Protocol):
    """Vectors of the clients by which the server may cluster them."""

    def layer_weights(self, index: int) -> Tensor:
        """``[K, …]``: weights of the index-th convolution or linear layer, counted from 1."""

    @property
    def layer_count(self) -> int:
        """Number of convolution and linear layers of the feature extractor."""

    def parameters(self) -> Tensor:
        """``[K, P]``: all trained parameters."""

    def batch_norm_statistics(self) -> Tensor:
        """``[K, …]``: running means and variances of all BatchNorm layers."""

    def source_signatures(self) -> Signatures:
        """The same vectors of the model that all clients started from; each result has one row."""

    def styles(self, share: float, images: int) -> Tensor:
        """``[K, F]``: mean low-frequency amplitude of some images of each client; it leaves the client."""

    def moments(self, layers: NormLayers) -> Tensor:
        """``[K, F]``, no unit: shift of the inputs of the source model's BatchNorm layers on each client's images.

        See `fedwca.functional.moment_shift`. Of the bottleneck's BatchNorm or of all; it leaves the client.
        """

    def domains(self) -> Tensor:
        """``[K]``: the true domains; only a clusterer marked ``oracle`` gets an answer."""

    @property
    def clients(self) -> int:
        """K."""
