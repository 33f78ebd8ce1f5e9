"""Base class of partitions whose clients each belong to a unit of the data, such as a writer or a superclass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import PositiveInt

from fedwca.errors import UsageError
from fedwca.functional import unit_partition
from fedwca.partitions._labelled_partition import LabelledPartition

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data.dataset import Integers
    from fedwca.data.image_pool import ImagePool


WHERE_UNITS_ARE = (
    "an archive says them as key 'units' (or 'client'), int64, a folder of images in <domain>/units.csv, "
    "one for each image"
)
"""Where a data set's units are read from, for messages."""


class UnitPartition(LabelledPartition):
    """The images of each unit are dealt at random to clients of its own; the data say how many clients there are."""

    unit_noun: ClassVar[str]
    """What units are called in messages, in the plural."""

    per_unit: PositiveInt = 1
    """Clients of each unit."""

    def share_out(self, pool: ImagePool, clients: int, random: Generator) -> Sequence[Integers]:
        """See `fedwca.functional.unit_partition`; all variants of an image go to the client of the first one.

        Raises:
            UsageError: the data have no units.
        """
        if pool.units is None:
            raise UsageError(f"partition {self.name}: {pool.name} does not say {self.unit_noun}; {WHERE_UNITS_ARE}")
        bases = pool.base_positions()
        return pool.with_variants(
            [bases[positions] for positions in unit_partition(pool.units[bases], self.per_unit, random)]
        )
