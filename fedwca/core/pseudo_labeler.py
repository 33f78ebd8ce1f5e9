"""The base class of pseudo-labelers: the training targets of unlabeled images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedwca.component import Component
from fedwca.core.messages import Predictions, Targets


class PseudoLabeler(Component):
    """Makes the training targets of unlabeled samples from models' predictions."""

    models: ClassVar[tuple[str, ...]] = ("start",)
    """The models whose predictions it reads: ``start`` and names of the aggregator's references."""

    renew: Literal["round", "epoch"] = "round"
    """Whether labels are made once per round, or again before each epoch from the current model."""

    @property
    def mixes(self) -> bool:
        """Whether an image may be mixed with another; False saves engines from checking."""
        return True

    @property
    def selects_clients(self) -> bool:
        """Whether `trust` is overridden, which takes a pass of the source model over all images."""
        return type(self).trust is not PseudoLabeler.trust

    @property
    def untrained_take_mean(self) -> bool:
        """Whether clients of a group in which no client trains take the mean parameters of the most trusted clients."""
        return False

    def trust(self, source: Predictions) -> Tensor:
        """How far a client's labels are trusted ``[]``, 0 to 1; called once.

        It is called before round 0 and used in all rounds or, where clients without labels adapt in a last phase,
        before that phase. The value multiplies the weights of the client's targets. At 0 the client does not train: of
        the model it is sent only the BatchNorm statistics change, which are re-estimated on its images. A group's mean
        is over its most trusted clients.

        Args:
            source: predictions of the client's images by the source model or, before a last phase, by the model the
                client is delivered.
        """
        return torch.ones((), device=source.logits.device)

    @abstractmethod
    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Targets of one client's N samples.

        Args:
            predictions: by name of the model; logits ``[N, M]`` and features ``[N, q]``, in eval mode, plain images.
            draws: uniform numbers in [0, 1) ``[N]``, for whatever is drawn per sample.
        """
