"""One labelled domain at the server; every other domain is spread over unlabeled clients."""

from __future__ import annotations

from fedwca.partitions import register
from fedwca.partitions._domain_partition import DomainPartition


@register("domains")
class Domains(DomainPartition):
    """Federated source-free domain adaptation (FFREEDA): clients of a domain have i.i.d. images.

    Source: FedWCA, sec. 3; Shenaj et al. (LADD), WACV 2023.
    """

    label = "unlabeled clients"
    paper = "FedWCA sec. 3; Shenaj et al. 2023"
