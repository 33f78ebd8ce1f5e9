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
        """Whether it may trust clients more and less, which takes a pass of the source model over all images."""
        return type(self).trusts is not PseudoLabeler.trusts

    @property
    def untrained_take_mean(self) -> bool:
        """Whether clients of a group in which nobody trains take the mean parameters of those that are trusted most."""
        return False

    def trusts(self, source: Predictions) -> Tensor:
        """How far a client's labels are trusted ``[]``, 0 to 1; asked once, before round 0, and kept for all rounds.

        It is the factor of the weights of its targets. 0: the client does not train; what it is sent stays as it is but
        for BatchNorm's statistics, which are re-estimated on its images. A group is averaged over those that are
        trusted most in it.

        Args:
            source: what the source model says of the client's images.
        """
        return torch.ones((), device=source.logits.device)

    @abstractmethod
    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """Targets of one client's N samples.

        Args:
            predictions: by name of the model; logits ``[N, M]`` and features ``[N, q]``, in eval mode, plain images.
            draws: uniform numbers in [0, 1) ``[N]``, for whatever is drawn per sample.
        """
