"""What a federation is: clients with what each may know of its images, and metrics that alone know more."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedwca.data.metrics import Metrics


@dataclass(frozen=True, eq=False)
class ClientImages:
    """All that training may see of a client: uint8 images ``[N, 3, H, W]``, labels where it has some, no domain."""

    train: Tensor
    """``[N_train, 3, H, W]``, at least one."""
    validation: Tensor
    """``[N_validation, 3, H, W]``, kept aside; may be empty."""
    test: Tensor
    """``[N_test, 3, H, W]``; may be empty."""
    labels: Tensor | None = None
    """Of the training images ``[N_train]`` int64; None: it has images alone."""

    def __repr__(self) -> str:
        train, validation, test = map(len, (self.train, self.validation, self.test))
        return f"<ClientImages: {train} to train, {validation} kept aside, {test} to test>"


@dataclass(frozen=True, eq=False)
class Federation:
    """K clients, numbered domain after domain, and what may be measured of them."""

    clients: tuple[ClientImages, ...]
    metrics: Metrics
    newcomers: tuple[Federation, ...] = ()
    """Groups of clients that come when training is over, with images to test alone; no engine that trains has them."""
    label: str = ""
    """What tables call it, where it is a group of newcomers."""
    first: int = 0
    """Of a group of newcomers, how many others are numbered before them: groups of the same clients, with other shares
    of their images, have one number."""
    least_measured: int = 3
    """Images that a client needs for one of them to be for test."""
    public: Tensor | None = None
    """Images that everybody has, no client's own ``[N, 3, H, W]`` uint8, without labels; None: there are none."""

    @property
    def everybody(self) -> tuple[ClientImages, ...]:
        """Clients that train, behind them the newcomers; for what is known of images before anything is trained."""
        return sum((group.clients for group in self.newcomers), self.clients)

    @property
    def measured(self) -> tuple[str, ...]:
        """Domain or group of each client that records measure: those that train, behind them the newcomers."""
        return sum((group.metrics.domains for group in self.newcomers), self.metrics.domains)

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        return f"<Federation of {len(self)} clients: {', '.join(dict.fromkeys(self.metrics.domains))}>"
