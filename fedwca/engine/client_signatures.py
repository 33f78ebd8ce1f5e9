"""Signatures by which the server can cluster clients, read from the bank."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedwca.core.messages import NormLayers
from fedwca.core.network import Network
from fedwca.engine.input_moments import measure_moments
from fedwca.engine.parameter_layout import Layout, Slot
from fedwca.engine.randomness import permutation
from fedwca.errors import InvalidConfig, UsageError
from fedwca.functional import amplitude_style


@dataclass(frozen=True)
class BankSignatures:
    """Implements `fedwca.core.messages.Signatures` for rows of a bank ``[K, P]``."""

    bank: Tensor
    layout: Layout
    source: Tensor
    """``[P]``, the model every client started from."""
    truth: Tensor | None = None
    """True domains ``[K]``; only set for a clusterer that is marked as an oracle."""
    images: Sequence[Tensor] = ()
    """Training images of each client ``[N, 3, H, W]``, for signatures that clients compute from them."""
    keys: Callable[[int], int] = lambda client: client
    """Maps a client to the key of its draw of images."""
    network: Network | None = None
    """Has the architecture of the source model, for signatures that clients compute with that model."""
    measured: dict[str, Tensor] = field(default_factory=dict, compare=False)
    """Results of `moments` by its ``layers``: each is computed and uploaded once."""

    @property
    def clients(self) -> int:
        """K, the number of clients."""
        return self.bank.shape[0]

    @property
    def layer_count(self) -> int:
        """Number of convolutions and linear layers."""
        return len(self.layout.layers())

    def layer_weights(self, index: int) -> Tensor:
        """Weight and bias of the index-th layer, counted from 1.

        Raises:
            InvalidConfig: the model has fewer layers.
        """
        layers = self.layout.layers()
        if not 1 <= index <= len(layers):
            raise InvalidConfig(f"signature {index}: this model has {len(layers)} layers with weights, counted from 1")
        return self._take(layers[index - 1])

    def parameters(self) -> Tensor:
        """All trained parameters; a copy, because a clusterer may change it in place."""
        return self.bank[:, : self.layout.trained].clone()

    def batch_norm_statistics(self) -> Tensor:
        """Running means and variances of all BatchNorm layers.

        Raises:
            InvalidConfig: the model has none.
        """
        if not self.layout.statistics:
            raise InvalidConfig("signature batch_norm: this model has no BatchNorm; group by another signature")
        return self._take(self.layout.statistics)

    def source_signatures(self) -> BankSignatures:
        """The source model, as a bank of one row."""
        return BankSignatures(self.source[None], self.layout, self.source)

    def styles(self, share: float, images: int) -> Tensor:
        """LADD's style of up to ``images`` randomly drawn images of each client ``[K, F]``, on the CPU."""
        drawn = [x[permutation(self.keys(k), len(x))[:images].to(x.device)] for k, x in enumerate(self.images)]
        return torch.stack([amplitude_style(x, share).cpu() for x in drawn])

    def moments(self, layers: NormLayers) -> Tensor:
        """Moments of the source model's BatchNorm inputs on each client's images ``[K, F]`` float64, on the CPU.

        A copy, because a clusterer may change it in place.
        """
        if layers not in self.measured:
            assert self.network is not None
            network = copy.deepcopy(self.network)
            self.layout.write(network, self.source)
            moments = [measure_moments(network, images, layers).cpu() for images in self.images]
            self.measured[layers] = torch.stack(moments)
        return self.measured[layers].clone()

    @property
    def uploaded(self) -> int:
        """How many numbers each client has uploaded beside its model."""
        return sum(values.shape[1] for values in self.measured.values())

    def domains(self) -> Tensor:
        """The true domains, for oracles."""
        if self.truth is None:
            raise UsageError("true domains are only shown to a clusterer that is marked oracle = True")
        return self.truth

    def _take(self, slots: list[Slot] | tuple[Slot, ...]) -> Tensor:
        return torch.cat([self.bank[:, slot.start : slot.stop] for slot in slots], 1)
