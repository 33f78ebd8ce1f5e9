"""Architectures in which clients may have networks of different widths, all stored in the layout of the widest."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

from pydantic import BeforeValidator, field_validator, model_validator

from fedwca.core.architecture import Architecture, Width
from fedwca.user_values import split_numbers


class SizedArchitecture(Architecture):
    """An architecture of one width or several: a narrow network is the leading corner of the widest, zeros elsewhere.

    Its layers of that width have to end in ReLU: a unit with zero weights in and out then has zero gradients, so that
    a narrow network stays narrow.
    """

    width: Width
    sizes: Annotated[tuple[Width, ...], BeforeValidator(split_numbers)] = ()
    """Widths in rising order, as 16+32+64, of which each client has one, drawn with equal chances; unset: the width."""

    @field_validator("sizes")
    @classmethod
    def _rise(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(width >= next_width for width, next_width in pairwise(value)):
            raise ValueError(f"is {'+'.join(map(str, value))}; widths in rising order are right, such as 16+32+64")
        return value

    @model_validator(mode="after")
    def _has_one_widest(self) -> Self:
        # The default width beside sizes is allowed: a model that is written out repeats it.
        if self.sizes and self.width != type(self).model_fields["width"].default:
            raise ValueError("width and sizes both say how wide the networks are; leave one out")
        return self

    @property
    def widest(self) -> int:
        """Width of the widest network, whose layout all rows of parameters have."""
        return self.sizes[-1] if self.sizes else self.width

    @property
    def size_variants(self) -> tuple[Architecture, ...]:
        """One architecture for each of the sizes."""
        return tuple(self.model_copy(update={"width": size, "sizes": ()}) for size in self.sizes) or (self,)
