"""Partitions by name: who has which images and labels, and what follows from it; each file beside this one is one.

A setting is a partition. Everything else asks it, or the federation it makes, and never its name.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedwca.registry import Component, Registry

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset, Federation


Alpha = Annotated[float, Field(gt=0, le=1e6)]
"""Of a Dirichlet distribution; above the bound all shares are alike, and further up numpy draws none."""


@dataclass(frozen=True)
class ClientSettings:
    """What a run says of its clients and their images."""

    clients: int
    """That train, at least 1; per domain where domains differ."""
    samples: int | None
    """Most images per client; None: as many as there are."""
    seed: int
    """0 or more."""
    published: bool = False
    """Whether the published training and test parts are taken, where the data say them."""
    new_clients: int | None = None
    """Those that training never meets, where there are any; None: as the partition says."""
    validation: float | None = None
    """Share of a training client's images that are kept aside to measure it; None: likewise."""


class Partition(Component):
    """Deals a data set's images, and labels, out to clients."""

    setting: ClassVar[str]
    """Folder of the baselines that are made for it."""
    usual: ClassVar[str]
    """The one of them whose labeler and objectives an aggregator gets that is named alone."""
    table: ClassVar[str | None] = None
    """Table of presets that says what is usual with it, where that is not what its setting's says."""
    named: ClassVar[Literal["source", "target"] | None] = None
    """What a run calls the one domain that is unlike the others; the field of its configuration that names it. None:
    domains do not differ, and clients have images of all of them."""
    whole: ClassVar[bool] = False
    """Whether clients train the whole network, from weights that nobody has trained before; else its features alone,
    from a model that was trained at the server."""
    some_unlabeled: ClassVar[bool] = False
    """Whether some clients have labels, which train, and others have none, which are asked, adapted and measured."""
    newcomers: ClassVar[bool] = False
    """Whether all clients that train have labels, and tables count others: new clients, which training never meets."""
    uneven: ClassVar[bool] = False
    """Whether a deal is meant to give clients of a domain other classes or sizes; records then count each one's."""

    @property
    def has_public_images(self) -> bool:
        """Whether there are images that everybody has, without labels."""
        return False

    @abstractmethod
    def __call__(self, dataset: FederatedDataset, domain: str | None, asked: ClientSettings) -> Federation:
        """The federation of a trial.

        Args:
            dataset: the labelled data; its images are copied.
            domain: the one domain that is unlike the others; None where there is none.
            asked: how many clients and images.

        Raises:
            UsageError: no such domain, or too few domains or images.
        """

    def choose_images(self, dataset: FederatedDataset, domain: str | None) -> FederatedDataset:
        """The images that a run has of a data set, the source model's too: all of them.

        Args:
            dataset: the labelled data.
            domain: the one domain that is unlike the others; None where there is none.
        """
        return dataset

    @abstractmethod
    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Who has what, in a line; arguments as of a call."""


partitions: Registry[Partition] = Registry("partition", __name__, requires=("__call__", "describe"))
register = partitions
