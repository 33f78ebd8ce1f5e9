"""FINCH on the first layer's weights: parameter-free clustering (FedWCA sec. 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import NonNegativeInt
from torch import Tensor

from fedwca.clusterers import register
from fedwca.clusterers._signature_clusterer import SignatureClusterer
from fedwca.core.messages import Signatures
from fedwca.errors import UsageError
from fedwca.functional import Metric, finch, finch_levels


@register("finch")
class Finch(SignatureClusterer):
    """Connected components of the first-neighbour graph of the clients' first-layer weights.

    Every cluster has at least two clients: a domain with a single client joins its nearest neighbour's cluster.
    Source: Sarfraz et al., CVPR 2019; FedWCA sec. 4.1.
    """

    label = "FINCH"
    paper = "Sarfraz et al. 2019; FedWCA sec. 4.1"

    level: NonNegativeInt = 0
    """Partition of the hierarchy, 0 the finest; clamped to the coarsest there is."""
    metric: Metric = "cosine"
    """Distance between signatures."""
    neighbours: Literal["auto", "torch", "faiss", "hnsw"] = "auto"
    """Search for first neighbours: hnsw is approximate; auto is exact, but hnsw on a CPU above 10,000 clients
    (not on macOS, where it is torch's search)."""
    precision: Literal["float64", "float32"] = "float64"
    """float32 is the naive cosine, which rounding spoils for small updates; it exists to study that."""

    def __call__(self, signatures: Signatures) -> Tensor:
        """FINCH's partition ``[K]``.

        Raises:
            UsageError: updates are compared by direction, and a client did not train.
        """
        x = self.read(signatures)
        idle = (x == 0).flatten(1).all(1)
        if self.reference == "source" and self.metric == "cosine" and idle.any():
            raise UsageError(
                f"client {int(idle.nonzero()[0])} did not train in round 0, so its update has no direction; take "
                "finch:reference=source,metric=euclidean, or reference=none"
            )
        return finch(x, self.level, backend=self.neighbours, precision=self.precision, metric=self.metric)

    @property
    def neighbour_metric(self) -> Metric | None:
        """The configured metric, whose first neighbours make the clusters."""
        return self.metric

    def client_vectors(self, signatures: Signatures) -> tuple[Tensor, Metric] | None:
        """The signatures, and the configured metric."""
        return self.read(signatures), self.metric

    def notes(self, signatures: Signatures) -> Mapping[str, Any]:
        """``levels``: cluster sizes of every partition of the hierarchy, finest first."""
        x = self.read(signatures)
        levels = finch_levels(x, backend=self.neighbours, precision=self.precision, metric=self.metric)
        return {**super().notes(signatures), "levels": [labels.bincount().tolist() for labels in levels]}
