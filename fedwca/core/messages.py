"""The values that travel between server, clients and components, and what a component may ask for.

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
"""What a server remembers between rounds; plain tensors, so that a checkpoint can hold it."""

NormLayers = Literal["bottleneck", "all"]
"""Whose inputs are measured: those of the bottleneck's BatchNorm, or of every BatchNorm there is."""


@dataclass(frozen=True)
class Offer:
    """The models each client is sent, as mixtures of the server's rows; each mixture sums to 1."""

    personal: Tensor
    """``[K, Q, R]``; the first is ``View.own``: with given clusters the cluster's model, which is also evaluated."""
    shared: Tensor
    """``[S, R]``; the same for everybody."""

    @classmethod
    def of_personal(cls, weights: Tensor) -> Offer:
        """Each client's own models ``[K, Q, R]``, or the only one of each ``[K, R]``, and nothing for everybody.

        >>> Offer.of_personal(torch.eye(3)).personal.shape
        torch.Size([3, 1, 3])
        """
        personal = weights if weights.ndim == 3 else weights[:, None]
        return cls(personal, personal.new_zeros(0, personal.shape[-1]))

    @property
    def models(self) -> int:
        """Models that travel down to one client."""
        return self.personal.shape[1] + self.shared.shape[0]


@dataclass(frozen=True)
class Blend:
    """What a client makes of the models it was sent; columns are (personal…, shared…), rows sum to 1."""

    start: Tensor
    """``[K, Q+S]``: the model training begins from (f_init)."""
    references: Mapping[str, Tensor] = field(default_factory=dict)
    """Further models to compare with, by name, each ``[K, Q+S]``; one that is not set is the own model."""
    report: Mapping[str, Tensor] = field(default_factory=dict)
    """What is uploaded beside the model, each ``[K, …]``, as declared in the aggregator's ``reports``."""
    labels: Tensor | None = None
    """``[K]``: the cluster a client chose for itself, in methods where it does."""
    notes: Mapping[str, Tensor] = field(default_factory=dict)
    """Further values for diagnostics, each ``[K, …]``; they stay at the client."""


@dataclass(frozen=True)
class Simplex:
    """A reported vector whose entries are at least 0 and sum to 1."""

    size: int | None = None
    """Entries; None: as many as there are shared models."""


@dataclass(frozen=True)
class Bounded:
    """An uploaded tensor of a known shape, whose vectors along the last axis are not longer than a bound."""

    shape: tuple[int, ...]
    norm: float
    """Largest L2 norm of a vector."""


@dataclass(frozen=True)
class Predictions:
    """What one model says of one client's samples."""

    logits: Tensor
    """``[N, M]``"""
    features: Tensor
    """``[N, q]``, the input of the classifier."""
    adapted: Tensor | None = None
    """``[N, M]``, logits after a step of the method's adaptation on all these samples; None: nobody asked."""

    @property
    def probabilities(self) -> Tensor:
        """``[N, M]``, softmax of the logits (h(x) in the paper)."""
        return self.logits.softmax(-1)


@dataclass(frozen=True)
class Targets:
    """What a client's samples are trained towards, for one round or one epoch."""

    labels: Tensor
    """``[N]`` int64: the selected pseudo-label."""
    weights: Tensor
    """``[N]`` in [0, 1]: weight of the sample's cross-entropy term; 0 leaves it out."""
    partners: Tensor
    """``[N]`` int64: the sample mixed in; where ``mix`` is 0 it is not read."""
    mix: Tensor
    """``[N]`` in [0, 1]: weight of the partner's image; 0 keeps the image as it is."""
    matched: Tensor
    """``[N]`` bool: whether the models that were asked agreed on the label."""
    notes: Mapping[str, Tensor] = field(default_factory=dict)
    """Further values for diagnostics; ``divisors``: what similarities were divided by, doubtful where not above 0."""

    @classmethod
    def of_labels(cls, labels: Tensor, weights: Tensor | None = None) -> Self:
        """Labels ``[N]`` with nothing mixed; weights ``[N]``: without them each counts in full."""
        weights = torch.ones_like(labels, dtype=torch.float32) if weights is None else weights
        itself = torch.arange(len(labels), device=labels.device)
        return cls(labels, weights, itself, torch.zeros_like(weights), torch.ones_like(labels, dtype=torch.bool))

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same with each tensor changed."""
        labels, weights, partners = change(self.labels), change(self.weights), change(self.partners)
        notes = {name: change(value) for name, value in self.notes.items()}
        return type(self)(labels, weights, partners, change(self.mix), change(self.matched), notes)


@dataclass(frozen=True)
class Latent:
    """The normal distributions, of independent entries, that features were drawn from."""

    mean: Tensor
    """``[B, q]``"""
    std: Tensor
    """``[B, q]``, above 0."""


@dataclass(frozen=True)
class Batch:
    """What an objective sees of one step."""

    logits: Tensor
    """``[B, M]`` of the plain images, as training shows them: with the network's own augmentation where it has one."""
    features: Tensor
    """``[B, q]`` of the same."""
    target_logits: Tensor
    """``[B, M]`` of the images the labels belong to: the mixed one where there is one, else the plain one."""
    labels: Tensor
    """``[B]`` int64."""
    weights: Tensor
    """``[B]`` in [0, 1], as in `Targets`."""
    reference_logits: Mapping[str, Tensor] = field(default_factory=dict)
    """``[B, M]`` of the plain images by frozen models, by name; those that an objective's ``teachers`` names."""
    view_logits: Mapping[str, Tensor] = field(default_factory=dict)
    """``[B, M]`` of views of the same images, by name; ``strong`` where an objective's ``views`` names it."""
    observed: Mapping[str, Tensor] = field(default_factory=dict)
    """What objectives measured on all of the client's images when they were labelled last (`Objective.observe`)."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """What the server shares of uploads that are not models (`Objective.pool`); empty in round 0."""
    adapted_logits: Tensor | None = None
    """As ``target_logits``, by the model after one differentiable step of the method's adaptation on the plain images.
    Without a step, as in `View.loss`, they are ``target_logits``. None: no objective ``adapts``."""
    latent: Latent | None = None
    """What ``features`` were drawn from. None: they were not drawn, as where no objective asks for ``feature_draws``,
    and in `View.loss`."""
    networks: ExtraNetworks = field(default_factory=dict)
    """Extra networks by name, with the client's parameters; empty in `View.loss`."""
    frozen: ExtraNetworks = field(default_factory=dict)
    """The same as constants: gradients go through them to what they read, and not to their parameters."""
    noise: Tensor | None = None
    """Uniform numbers in [0, 1) ``[B, n]``, n the most that an objective's ``noise`` asks for. None: none does, or it
    is `View.loss`."""


class View(Protocol):
    """What a client knows about the models it was sent: evidence, asked for by mixtures over them.

    A view speaks for the K clients of a slice; row k of every answer uses the data of client k alone.
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
        """``[M, Q+S] -> [K, M]``: mean cosine between features and the nearest classifier vector (I of eq. 1)."""

    def density(self, mixtures: Tensor) -> Tensor:
        """``[K, Q+S] -> [K]``: soft neighborhood density of the mixed model's outputs, in nats (eq. 6)."""

    def loss(self, mixtures: Tensor) -> Tensor:
        """``[M, Q+S] -> [K, M]``: the objectives with the labels the mixed model itself gives, in nats."""


class Signatures(Protocol):
    """What the server may cluster clients by."""

    def layer(self, index: int) -> Tensor:
        """``[K, …]``: weights of the index-th convolution or linear layer, counted from 1."""

    @property
    def layers(self) -> int:
        """Convolutions and linear layers of the feature extractor."""

    def everything(self) -> Tensor:
        """``[K, P]``: all trained parameters."""

    def statistics(self) -> Tensor:
        """``[K, …]``: running means and variances of all BatchNorm layers."""

    def reference(self) -> Signatures:
        """The model everybody started from, under the same questions; each answer has one row."""

    def styles(self, share: float, images: int) -> Tensor:
        """``[K, F]``: mean low-frequency amplitude of some images of each client, which leaves the client."""

    def moments(self, layers: NormLayers) -> Tensor:
        """``[K, F]``, no unit: how far the inputs of the source model's BatchNorm have moved at each client's images
        (`fedwca.functional.moment_shift`), of the bottleneck's or of all of them; leaves the client.
        """

    def domains(self) -> Tensor:
        """``[K]``: the true domains; only a clusterer marked ``oracle`` gets an answer."""

    @property
    def clients(self) -> int:
        """K."""
