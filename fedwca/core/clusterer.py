"""What a clusterer provides: which clients are averaged with each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from fedwca.core.messages import NormLayers, Signatures
from fedwca.functional import Metric
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
