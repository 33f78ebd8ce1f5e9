"""Clients whose images are rotated, those of new clients by other angles than those of training clients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from fedwca.errors import UsageError
from fedwca.functional import rotate_images, unit_partition
from fedwca.partitions import register
from fedwca.partitions._labelled_partition import LabelledPartition, check_distinct
from fedwca.user_values import split_numbers

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data.dataset import Integers
    from fedwca.data.image_pool import ImagePool
    from fedwca.data.labelled_clients import Dealt

Angles = Annotated[
    tuple[float, ...], Field(min_length=1), BeforeValidator(split_numbers), AfterValidator(check_distinct)
]


@register("rotations")
class Rotations(LabelledPartition):
    """Concept shift: images are dealt at random, and each client's are turned by one angle.

    Source: FedTTA, app. F.
    """

    label = "labelled clients and new ones, turned by other angles"
    paper = "FedTTA app. F"

    train: Angles = (0.0, 30.0, 60.0)
    """Degrees, counter-clockwise, by which images of training clients are rotated; clients take the angles by turns."""
    new: Angles = (15.0, 45.0)
    """Degrees of new clients, who take them by turns likewise; those of one angle are a group."""

    def deal(self, pool: ImagePool, clients: int, new: int, random: Generator) -> Dealt:
        """Deal images at random; clients take the angles by turns.

        Raises:
            UsageError: there are fewer clients than angles.
        """
        from fedwca.data.labelled_clients import Dealt, DealtImages

        for field, count, option in (("train", clients, "--clients"), ("new", new, "--new-clients")):
            if count < len(angles := getattr(self, field)):
                raise UsageError(
                    f"{option} {count}: partition rotations has {len(angles)} angles in {field!r}, each for a client "
                    f"at least; take more clients, or fewer angles (--set partition.rotations.{field}={angles[0]:g})"
                )
        dealt = self.share_out(pool, clients + new, random)
        rotations = {
            angle: partial(rotate_images, degrees=angle) if angle else None for angle in (*self.train, *self.new)
        }
        training = [
            DealtImages(positions, rotations[self.train[index % len(self.train)]])
            for index, positions in enumerate(dealt[:clients])
        ]
        groups = {
            f"{angle:g} degrees": [
                DealtImages(positions, rotations[angle]) for positions in dealt[clients + index :: len(self.new)]
            ]
            for index, angle in enumerate(self.new)
        }
        return Dealt(training, groups)

    def share_out(self, pool: ImagePool, clients: int, random: Generator) -> Sequence[Integers]:
        """Deal all images at random; clients differ by at most one group of variants in size."""
        bases = pool.base_positions()
        dealt = unit_partition(np.zeros(len(bases), np.int64), clients, random)
        return pool.with_variants([bases[positions] for positions in dealt])
