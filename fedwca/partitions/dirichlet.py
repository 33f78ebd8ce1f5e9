"""Classes skewed by draws from a Dirichlet distribution."""

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
    """Clients' classes are skewed alike, or those of new ones otherwise.

    Source: Hsu et al. 2019 (arXiv 1909.06335); FedTTA, sec. 4.3.
    """

    label = "labelled clients and new ones, Dirichlet classes"
    paper = "Hsu et al. 2019; FedTTA sec. 4.3"

    alpha: Alpha = 0.1
    """Towards 0 a class goes to one client, towards infinity all clients are alike."""
    new: Annotated[tuple[Alpha, ...], BeforeValidator(split_numbers), AfterValidator(check_distinct)] = ()
    """Alphas of new clients, as 0.01+0.1+0.5, a group of new clients each: they share the published test part, or as
    large a part of the images as they are among clients, and training clients the other one. None: alpha's, and all
    clients are dealt images together."""
    by: Literal["class", "client"] = "class"
    """What a draw belongs to: class, shares of each class over clients, so that sizes differ; client, classes of each
    client, all of one size."""

    def deal(self, pool: ImagePool, clients: int, new: int, random: Generator) -> Dealt:
        """As of all labelled partitions; with alphas of new clients, one part of the images for each kind of client.

        Raises:
            DataError: a part has fewer images (groups, where there are groups) than clients.
        """
        from fedwca.data.labelled_clients import Dealt, DealtImages

        if not self.new:
            return super().deal(pool, clients, new, random)
        first, second = pool.cut(new / (clients + new), random)
        own, others = pool.bases(first), pool.bases(second)
        for bases, count, who in ((own, clients, "that train"), (others, new, "that are new")):
            if len(bases) < count:
                raise DataError(
                    f"partition {self.name}: the part of {pool.name} for clients {who} has {len(bases)} images without "
                    f"their variants, too few for {count}; take fewer --clients and --new-clients"
                )
        training = self._skewed(pool, own, clients, self.alpha, random)
        later = {f"alpha {a:g}": self._skewed(pool, others, new, a, random) for a in self.new}
        return Dealt(
            [DealtImages(own) for own in training],
            {label: [DealtImages(own) for own in group] for label, group in later.items()},
        )

    def share_out(self, pool: ImagePool, clients: int, random: Generator) -> Sequence[Integers]:
        """See `fedwca.functional.dirichlet_partition`; variants of one image go with the first of them."""
        return self._skewed(pool, pool.bases(), clients, self.alpha, random)

    def _skewed(
        self, pool: ImagePool, bases: Integers, clients: int, alpha: float, random: Generator
    ) -> list[Integers]:
        dealt = dirichlet_partition(pool.labels[bases], clients, alpha, random, self.by)
        return pool.with_variants([bases[own] for own in dealt])
