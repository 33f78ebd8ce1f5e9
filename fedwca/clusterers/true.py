"""The true domains: an oracle for ablations."""

from __future__ import annotations

from torch import Tensor

from fedwca.clusterers import register
from fedwca.core.interfaces import Clusterer
from fedwca.core.messages import Signatures


@register("true")
class TrueDomains(Clusterer):
    """Clusters are the domains the clients' images came from, which no real server knows.

    Source: FedWCA, Table 13 ('True').
    """

    label = "True"
    paper = "FedWCA App. E.2, Table 13"
    oracle = True

    def __call__(self, signatures: Signatures) -> Tensor:
        """The domain of each client ``[K]``."""
        return signatures.domains()
