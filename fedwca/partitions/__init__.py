"""Partitions by name: which client has which images and labels; each module beside this one is one.

The partition determines the setting of a run. Other code reads its attributes, or the federation that it creates, and
never compares its name.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedwca.component import Component
from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset, Federation


Alpha = Annotated[float, Field(gt=0, le=1e6)]
"""Concentration of a Dirichlet distribution; at the bound all shares are alike, and far above it numpy cannot draw."""


@dataclass(frozen=True)
class ClientSettings:
    """Settings of a run for its clients and their images."""

    clients: int
    """Number of clients that train, at least 1; per domain if domains differ."""
    samples: int | None
    """Most images per client; None: as many as there are."""
    seed: int
    """0 or more."""
    published_split: bool = False
    """Whether the published training and test parts are used; the data set must have them."""
    new_clients: int | None = None
    """Number of new clients, which training never meets, among which their images are divided, if there are any; None:
    the partition's default."""
    validation: float | None = None
    """Share of a training client's images that is held out to measure it; None: the partition's default."""


class Partition(Component):
    """Deals the images and labels of a data set to clients."""

    setting: ClassVar[str]
    """Name of the setting, which is the folder of its baselines."""
    default_baseline: ClassVar[str]
    """The baseline whose labeler and objectives are used when a run names only an aggregator."""
    preset_table: ClassVar[str | None] = None
    """Table of presets with the defaults of this partition; None: the table of its setting."""
    domain_role: ClassVar[Literal["source", "target"] | None] = None
    """Role of the one domain that is unlike the others, and field of a run's configuration that names it. None: there
    is no such domain, and clients have images of all domains."""
    trains_classifier: ClassVar[bool] = False
    """Whether clients train the whole network, from untrained weights; else its features alone, from a model that was
    trained at the server."""
    some_unlabeled: ClassVar[bool] = False
    """Whether some clients are labelled and train, and the others are unlabeled, and queried, adapted and measured."""
    has_newcomers: ClassVar[bool] = False
    """Whether all training clients have labels, and tables count others: new clients, which training never meets."""
    has_skewed_clients: ClassVar[bool] = False
    """Whether clients of a domain differ in classes or sizes by design; records then have class counts of each."""

    @property
    def has_public_images(self) -> bool:
        """Whether there are public images, which every client has, without labels."""
        return False

    @abstractmethod
    def __call__(self, dataset: FederatedDataset, domain: str | None, settings: ClientSettings) -> Federation:
        """Create the federation of a trial.

        Args:
            dataset: the labelled data; its images are copied.
            domain: the one domain that is unlike the others; None where there is none.
            settings: numbers of clients and images, seed and splits.

        Raises:
            UsageError: no such domain, or too few domains or images.
        """

    def choose_images(self, dataset: FederatedDataset, domain: str | None) -> FederatedDataset:
        """The images of a data set that a run uses, also for its source model; by default all.

        Args:
            dataset: the labelled data.
            domain: the one domain that is unlike the others; None where there is none.
        """
        return dataset

    @abstractmethod
    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Describe in a line which clients have what; arguments as for a call."""


partitions: Registry[Partition] = Registry(
    "partition",
    __name__,
    requires=("__call__", "describe"),
    states=("setting", "default_baseline"),
    base="fedwca.partitions.Partition",
)
register = partitions
