"""The base class of clusterers: which clients are averaged with each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from fedwca.component import Component
from fedwca.core.messages import NormLayers, Signatures
from fedwca.functional import Metric


class Clusterer(Component):
    """Groups the clients once, after the first local adaptation."""

    oracle: ClassVar[bool] = False
    """Whether it reads the true domains, which no real server knows; tables mark it."""

    @abstractmethod
    def __call__(self, signatures: Signatures) -> Tensor:
        """Cluster of each client ``[K]`` int64, numbered 0..C-1 without gaps."""

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """Vectors by which clients are compared ``[K, …]``, and their metric; None where nothing is compared.

        A newcomer joins the cluster of the client that is nearest by them. A client's vector must not depend on other
        clients: those that join a deployment late are asked alone.
        """
        return None

    @property
    def neighbour_metric(self) -> Metric | None:
        """Metric by which the record of round 0 notes the nearest `client_vectors`; None: it notes nothing.

        Only for vectors that are read from models: a record must not tell anything about images.
        """
        return None

    @property
    def norm_layers(self) -> NormLayers | None:
        """The BatchNorm layers whose `Signatures.moments` it reads instead of models; None: it reads none.

        Clients of a real federation upload them once.
        """
        return None

    @property
    def compares_models(self) -> bool:
        """Whether newcomers are placed by vectors of trained models; if not, they are placed without training.

        Its `client_vectors` are of models, or it has none, so that first layers are compared.
        """
        return self.norm_layers is None

    @property
    def layer_number(self) -> int | None:
        """Number of the one layer it is configured to read, from 1; None if there is none."""
        return None

    def notes(self, signatures: Signatures) -> Mapping[str, Any]:
        """Further plain values for the record of round 0; a sentence under ``warning`` is shown to users."""
        return {}
