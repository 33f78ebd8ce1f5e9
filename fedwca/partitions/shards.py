"""Shards of one class each, of which a client has a few, so that it has few classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import PositiveInt

from fedwca.errors import DataError, UsageError
from fedwca.functional import shard_partition
from fedwca.partitions import register
from fedwca.partitions._labelled_partition import LabelledPartition

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data.dataset import Integers
    from fedwca.data.image_pool import ImagePool


@register("shards")
class Shards(LabelledPartition):
    """Every client, training or new, has the same number of shards, each of one class.

    Source: McMahan et al. (FedAvg), AISTATS 2017, sec. 3; FedTTA, sec. 4.1.
    """

    label = "labelled clients and new ones, shards of one class"
    paper = "McMahan et al. 2017 sec. 3; FedTTA sec. 4.1"

    per_client: PositiveInt = 2
    """Shards of each client."""
    distinct: bool = False
    """Whether a client's shards are of different classes; else they are dealt at random."""

    def share_out(self, pool: ImagePool, clients: int, random: Generator) -> Sequence[Integers]:
        """See `fedwca.functional.shard_partition`.

        Raises:
            DataError: variants of one image have several classes, so that shards of one class would separate them.
            UsageError: there are too few images or shards, or too many shards of a class.
        """
        group_of_pair = np.unique(np.stack([pool.groups, pool.labels]), axis=1)[0]
        if len(group_of_pair) > len(np.unique(group_of_pair)):
            raise DataError(
                f"partition {self.name}: {pool.name} has groups (variants of one image) with several classes, which "
                "shards of one class would separate; take another partition, such as dirichlet"
            )
        try:
            return shard_partition(pool.labels, clients, self.per_client, random, self.distinct, pool.groups)
        except UsageError as error:  # of a function that knows no partition
            raise UsageError(f"partition {self.name}: {error}") from error
