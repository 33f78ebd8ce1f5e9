"""Labelled clients and new ones whose classes are skewed by draws from a Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from fedwca.errors import DataError
from fedwca.functional import dirichlet_partition
from fedwca.partitions import Alpha, register
from fedwca.partitions._labelled_partition import LabelledPartition, check_distinct
from fedwca.user_values import split_numbers

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data.dataset import Integers
    from fedwca.data.image_pool import ImagePool
    from fedwca.data.labelled_clients import Dealt


@register("dirichlet")
class Dirichlet(LabelledPartition):
    """Classes are skewed alike for all clients, or with other alphas for new ones.

    Source: Hsu et al. 2019 (arXiv 1909.06335); FedTTA, sec. 4.3.
    """

    label = "labelled clients and new ones, Dirichlet classes"
    paper = "Hsu et al. 2019; FedTTA sec. 4.3"

    alpha: Alpha = 0.1
    """Concentration: towards 0 a class goes to one client (by class) or a client has one class (by client), towards
    infinity all clients are alike."""
    new: Annotated[tuple[Alpha, ...], BeforeValidator(split_numbers), AfterValidator(check_distinct)] = ()
    """Alphas of new clients, as 0.01+0.1+0.5; for each, their images are divided anew, among a group of new
    clients. New clients get the published test part, training clients the training part; without published parts, each
    kind gets a share of the images in proportion to its number of clients. Unset: alpha, and all clients are dealt
    images together."""
    by: Literal["class", "client"] = "class"
    """What is drawn: class, the shares of each class over clients, so that sizes differ; client, the classes of each
    client, all of one size."""

    def deal(self, pool: ImagePool, clients: int, new: int, random: Generator) -> Dealt:
        """Deal images as other labelled partitions do, or with alphas of new clients one part to each kind of client.

        Raises:
            DataError: a part has fewer images (groups, where there are groups) than clients.
        """
        from fedwca.data.labelled_clients import Dealt, DealtImages

        if not self.new:
            return super().deal(pool, clients, new, random)
        first, second = pool.split_published(new / (clients + new), random)
        training_bases, new_bases = pool.base_positions(first), pool.base_positions(second)
        for bases, count, kind in ((training_bases, clients, "that train"), (new_bases, new, "that are new")):
            if len(bases) < count:
                raise DataError(
                    f"partition {self.name}: the part of {pool.name} for clients {kind} has {len(bases)} images "
                    f"without their variants, too few for {count}; take fewer --clients and --new-clients"
                )
        training = self._skewed(pool, training_bases, clients, self.alpha, random)
        new_groups = {f"alpha {alpha:g}": self._skewed(pool, new_bases, new, alpha, random) for alpha in self.new}
        return Dealt(
            [DealtImages(positions) for positions in training],
            {label: [DealtImages(positions) for positions in group] for label, group in new_groups.items()},
        )

    def share_out(self, pool: ImagePool, clients: int, random: Generator) -> Sequence[Integers]:
        """See `fedwca.functional.dirichlet_partition`; all variants of an image go to the client of the first one."""
        return self._skewed(pool, pool.base_positions(), clients, self.alpha, random)

    def _skewed(
        self, pool: ImagePool, bases: Integers, clients: int, alpha: float, random: Generator
    ) -> list[Integers]:
        dealt = dirichlet_partition(pool.labels[bases], clients, alpha, random, self.by)
        return pool.with_variants([bases[positions] for positions in dealt])
