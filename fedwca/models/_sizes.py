"""Architectures whose clients may have networks of different widths, all laid out as the widest."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

from pydantic import BeforeValidator, PositiveInt, field_validator, model_validator

from fedwca.core.network import Architecture
from fedwca.user_values import split_numbers


class SizedArchitecture(Architecture):
    """One of one width, or of several: a narrow network is the leading corner of the widest, zeros elsewhere.

    Its layers of that width have to end in ReLU: a unit with zero weights in and out then has zero gradients, so the
    narrow network stays one.
    """

    width: PositiveInt
    sizes: Annotated[tuple[PositiveInt, ...], BeforeValidator(split_numbers)] = ()
    """Widths in rising order, as 16+32+64, of which each client has one, drawn with equal chances; unset: the width."""

    @field_validator("sizes")
    @classmethod
    def _rise(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(one >= other for one, other in pairwise(value)):
            raise ValueError(f"is {'+'.join(map(str, value))}; widths in rising order are right, such as 16+32+64")
        return value

    @model_validator(mode="after")
    def _has_one_widest(self) -> Self:
        # Whoever repeats the default, as a written-out model does, says nothing.
        if self.sizes and self.width != type(self).model_fields["width"].default:
            raise ValueError("width and sizes both say how wide the networks are; leave one out")
        return self

    @property
    def widest(self) -> int:
        """Width of the network that rows are laid out as."""
        return self.sizes[-1] if self.sizes else self.width

    @property
    def variants(self) -> tuple[Architecture, ...]:
        """One for each of the sizes."""
        return tuple(self.model_copy(update={"width": size, "sizes": ()}) for size in self.sizes) or (self,)
