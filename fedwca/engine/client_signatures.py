"""What the server can cluster clients by, read from the bank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout, Slot
from fedwca.engine.randomness import permutation
from fedwca.errors import InvalidConfig
from fedwca.functional import amplitude_style


@dataclass(frozen=True)
class BankSignatures:
    """Implements `fedwca.core.messages.Signatures` for rows of a bank ``[K, P]``."""

    bank: Tensor
    layout: Layout
    source: Tensor
    """``[P]``, the model everybody started from."""
    truth: Tensor | None = None
    """True domains ``[K]``; only set for a clusterer that is marked as an oracle."""
    images: Sequence[Tensor] = ()
    """Training images of each client ``[N, 3, H, W]``, for signatures that clients compute of them."""
    keys: Callable[[int], int] = lambda client: client
    """A client to the key of its draw of images."""

    @property
    def clients(self) -> int:
        """K."""
        return self.bank.shape[0]

    @property
    def layers(self) -> int:
        """Convolutions and linear layers."""
        return len(self.layout.layers())

    def layer(self, index: int) -> Tensor:
        """Weight and bias of the index-th layer, counted from 1.

        Raises:
            InvalidConfig: the model has fewer layers.
        """
        layers = self.layout.layers()
        if index > len(layers):
            raise InvalidConfig(f"signature {index}: this model has {len(layers)} layers with weights")
        return self._take(layers[index - 1])

    def everything(self) -> Tensor:
        """All trained parameters."""
        return self.bank[:, : self.layout.trained]

    def statistics(self) -> Tensor:
        """Running means and variances of all BatchNorm layers."""
        return self._take(self.layout.statistics)

    def reference(self) -> BankSignatures:
        """The source model, as a bank of one row."""
        return BankSignatures(self.source[None], self.layout, self.source)

    def styles(self, share: float, images: int) -> Tensor:
        """LADD's style of randomly drawn images."""
        drawn = [x[permutation(self.keys(k), len(x))[:images].to(x.device)] for k, x in enumerate(self.images)]
        return torch.stack([amplitude_style(x, share).cpu() for x in drawn])

    def domains(self) -> Tensor:
        """The true domains, for oracles."""
        if self.truth is None:
            raise PermissionError("true domains are only shown to a clusterer that is marked oracle = True")
        return self.truth

    def _take(self, slots: list[Slot] | tuple[Slot, ...]) -> Tensor:
        return torch.cat([self.bank[:, slot.start : slot.stop] for slot in slots], 1)
