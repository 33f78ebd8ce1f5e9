"""What a pseudo-labeler provides: what each unlabeled image is trained towards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedwca.core.messages import Predictions, Targets
from fedwca.registry import Component


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
