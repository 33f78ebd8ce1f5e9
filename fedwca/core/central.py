"""The base class of central methods: a loss over labelled sources and an unlabeled target that are in one place.

A central method is not federated: one step sees images of all domains. Tables show it beside federated methods because
the literature does. Like all components, it is frozen, holds no state, and sees no engine.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedwca.component import Component


@dataclass(frozen=True)
class DomainBatch:
    """What a central method sees of one step: B images of each of K sources, and B of the target.

    Where domains are pooled, all labelled images are one source, and there are no unlabeled images of the target.
    """

    features: tuple[Tensor, ...]
    """By source ``[B, q]``: inputs of the classifier."""
    logits: tuple[Tensor, ...]
    """By source ``[B, M]``."""
    labels: tuple[Tensor, ...]
    """By source ``[B]`` int64."""
    target_features: Tensor
    """``[B, q]``."""
    target_logits: Tensor
    """``[B, M]``."""
    progress: float
    """Share of the steps that are done, from 0 to below 1."""
    extra_modules: nn.Module
    """The modules that `Central.extra_modules` made."""

    def cross_entropy(self) -> Tensor:
        """Plain cross-entropy ``[]``, the mean over all images of all sources."""
        return nn.functional.cross_entropy(torch.cat(self.logits), torch.cat(self.labels))


class Central(Component):
    """A loss over several labelled domains and an unlabeled one."""

    pooled: ClassVar[bool] = False
    """Whether all labelled images, an oracle's being the target's, are one source, without an unlabeled target."""
    loss_per_source: ClassVar[bool] = False
    """Whether each source has its own loss and gradient, which `gradient_weights` weighs."""

    @property
    def oracle(self) -> bool:
        """Whether it is trained on the target's labels, which a method may not know; tables mark it."""
        return False

    def extra_modules(self, features: int, classes: int, sources: int) -> nn.Module:
        """Modules that are trained beside the network and discarded after training; by default none.

        Args:
            features: q.
            classes: M.
            sources: K.
        """
        return nn.Module()

    @abstractmethod
    def __call__(self, step: DomainBatch) -> Tensor:
        """The loss ``[]`` of one step; where ``loss_per_source``, the loss of each source ``[K]``."""

    def gradient_weights(self, before: Tensor, after: Tensor, classes: int) -> Tensor:
        """Weights of the sources' gradients ``[K]``, at least 0, sum 1; called only if ``loss_per_source``.

        Args:
            before: the target's features ``[B, q]`` in eval mode.
            after: the same after a plain step along the gradient of each source ``[K, B, q]``.
            classes: M.
        """
        return torch.full_like(after[:, 0, 0], 1 / len(after))
