"""FedTTA: the norm of a small network's outputs on the model's outputs; that network is trained with the model."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, PositiveFloat, PositiveInt, field_validator
from torch import Tensor, nn

from fedwca.adaptations import register
from fedwca.core.adaptation import Adaptation, ExtraNetworks
from fedwca.errors import UsageError
from fedwca.functional import learned_loss
from fedwca.user_values import split_numbers

NETWORK = "adaptation"
"""Name of the adaptation network."""


@register("learned")
class Learned(Adaptation):
    """‖g(outputs; phi)‖₂ with an adaptation network g from M outputs to one number, trained with the model.

    Source: FedTTA, eqs. 3-5 and 10-12; FedTTA++ with ``steps=50`` and a ``patience``.
    """

    label = "FedTTA"
    paper = "FedTTA eqs. 3-5, 10-12"

    rate: PositiveFloat = 0.001
    """Learning rate of the adaptation network (eta_adapt)."""
    width: PositiveInt = 32
    """Units of each hidden layer."""
    sizes: Annotated[tuple[PositiveInt, ...], BeforeValidator(split_numbers)] = ()
    """The width beside models of several sizes, as 32+64+128, one for each in rising order; unset, or beside models of
    one size: ``width``."""
    layers: PositiveInt = 3
    """Hidden layers, each followed by ReLU."""
    reduction: Literal["norm", "rms"] = "norm"
    """norm: the Euclidean length over images; rms: that divided by the root of their number."""
    batch: PositiveInt | None = None
    """Images per batch, the loss being the mean over batches; unset: all images in one batch."""

    @field_validator("sizes")
    @classmethod
    def _rise(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(width > next_width for width, next_width in pairwise(value)):
            raise ValueError(f"is {'+'.join(map(str, value))}; widths in rising order are right, such as 32+64+128")
        return value

    def loss(self, logits: Tensor, networks: ExtraNetworks) -> Tensor:
        """The length of the network's outputs."""
        return learned_loss(networks[NETWORK](logits), reduction=self.reduction, batch=self.batch)

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """M → width, ReLU, … → 1, with torch's initial weights."""
        widths = [classes, *[self.width] * self.layers]
        hidden = [part for i, o in pairwise(widths) for part in (nn.Linear(i, o), nn.ReLU())]
        return {NETWORK: nn.Sequential(*hidden, nn.Linear(self.width, 1))}

    def at_size(self, index: int, sizes: int) -> Self:
        """The adaptation with the width for a size."""
        if sizes == 1 or not self.sizes:
            return self
        if len(self.sizes) != sizes:
            raise UsageError(
                f"adaptation {self.name!r} has networks of {len(self.sizes)} sizes, and the models are of {sizes}; "
                "one for each is right, in rising order"
            )
        return self.model_copy(update={"width": self.sizes[index], "sizes": ()})

    def learning_rates(self) -> dict[str, float]:
        """The rate of the adaptation network."""
        return {NETWORK: self.rate}
