"""Federations: what training may see of each client, and the metrics that hold all other labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from fedwca.core.count_of import count_of
from fedwca.data.metrics import Metrics


@dataclass(frozen=True, eq=False)
class ClientImages:
    """All that training may see of a client: uint8 images ``[N, 3, H, W]`` and its labels, if any; never its domain."""

    train: Tensor
    """``[N_train, 3, H, W]``, at least one."""
    test: Tensor
    """``[N_test, 3, H, W]``; may be empty."""
    labels: Tensor | None = field(default=None, kw_only=True)
    """Labels of the training images ``[N_train]`` int64; None: the client is unlabeled."""

    def __repr__(self) -> str:
        return f"<ClientImages: {len(self.train)} to train, {len(self.test)} to test>"


def name_test_image_needs(sizes: Iterable[int], least: int) -> str:
    """What clients that have no test images need to have one, for messages.

    Args:
        sizes: number of images of each of these clients, before they were split.
        least: number of images that suffices for a test image where no two are of one group.

    >>> name_test_image_needs([2, 1], least=3), name_test_image_needs([2, 6], least=3)
    ('3 images', '3 images or images of more groups')
    """
    needs = {count_of(least, "image") if size < least else "images of more groups" for size in sizes}
    return " or ".join(sorted(needs))


@dataclass(frozen=True, eq=False)
class Federation:
    """K clients, numbered domain by domain, and the metrics that measure them."""

    clients: tuple[ClientImages, ...]
    """Their images, domain by domain."""
    metrics: Metrics
    """True labels and domains, in the order of the clients."""
    newcomers: tuple[Federation, ...] = ()
    """Groups of clients that join after training, with test images only; no training engine holds them."""
    label: str = ""
    """Name of a group of newcomers in tables."""
    first_number: int = 0
    """Number of the first client of a group of newcomers, which are numbered from 0 without the training clients.
    Groups of the same clients with different shares of their images have the same numbers."""
    test_image_needs: str = "3 images"
    """What clients without test images need to have one, see `name_test_image_needs`."""
    public_images: Tensor | None = None
    """Public images ``[N, 3, H, W]`` uint8, without labels, that every client has; None: there are none."""

    @property
    def all_clients(self) -> tuple[ClientImages, ...]:
        """Training clients, then newcomers; for checks and memory estimates before training starts."""
        return sum((group.clients for group in self.newcomers), self.clients)

    @property
    def measured_domains(self) -> tuple[str, ...]:
        """Domain or group of each client that records measure: training clients, then newcomers."""
        return sum((group.metrics.domains for group in self.newcomers), self.metrics.domains)

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        return f"<Federation of {len(self)} clients: {', '.join(dict.fromkeys(self.metrics.domains))}>"
