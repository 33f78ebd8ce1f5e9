"""How BatchNorm's running statistics are treated when models are mixed."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout, mix_rows
from fedwca.engine.randomness import fold_key, permutation


class BatchNormPolicy(StrEnum):
    """How running statistics are mixed, and what a client does with them; values are those of the configuration."""

    MIXED = "mixed"
    """Mixed like parameters (decisions, A7)."""
    POOLED = "pooled"
    """Mixed, where a mixed variance includes the spread of the means."""
    LOCAL = "local"
    """A client keeps its own statistics (FedBN)."""
    RECALIBRATED = "recalibrated"
    """Measured in one pass over the client's training images."""

    @property
    def one_model(self) -> bool:
        """Whether a mixture of the server's rows is the same model at every client."""
        return self in (BatchNormPolicy.MIXED, BatchNormPolicy.POOLED)

    def mix(self, weights: Tensor, rows: Tensor, layout: Layout) -> Tensor:
        """Mixtures of models ``[..., R] @ [R, P] -> [..., P]``."""
        if self is BatchNormPolicy.POOLED:
            return pool_statistics(weights, rows, layout)
        return mix_rows(weights, rows)

    def gather(self, weights: Tensor, rows: Tensor, bank: Tensor, layout: Layout) -> Tensor:
        """Next server rows ``[C, P]``: mixtures ``[C, R+K]`` of (previous rows ``[R, P]``, bank ``[K, P]``).

        Parts that stay with clients keep their initial values in the rows.
        """
        row_weights, bank_weights = weights.tensor_split([rows.shape[0]], 1)
        mixed = mix_rows(bank_weights, bank)
        if bool(row_weights.any()):  # weights of zero would take as much memory again
            mixed += mix_rows(row_weights, rows)
        if self is BatchNormPolicy.POOLED:
            bank_squares, row_squares = square_statistics(bank, layout), square_statistics(rows, layout)
            add_spread(mixed, mix_rows(bank_weights, bank_squares) + mix_rows(row_weights, row_squares), layout)
        for positions in layout.staying:
            mixed[:, positions] = rows[:1, positions]
        return mixed

    def apply(
        self,
        models: Tensor,
        bank: Tensor,
        clients: int | Tensor,
        layout: Layout,
        recalibrate: Callable[[Tensor], None],
    ) -> Tensor:
        """Turn mixed models, in place, into the models of their clients, and return them.

        Statistics follow the policy, and parts that stay with clients are taken from the bank.

        Args:
            models: ``[P]`` of one client, or ``[G, P]``.
            bank: every client's own model ``[K, P]``.
            clients: their numbers: one, or ``[G]`` int64.
            layout: of a row.
            recalibrate: replaces the statistics of ``models`` by those of the clients' images, in place.
        """
        if self is BatchNormPolicy.LOCAL:
            models[..., layout.trained :] = bank[clients, layout.trained :]
        elif self is BatchNormPolicy.RECALIBRATED:
            recalibrate(models)
        for positions in layout.staying:
            models[..., positions] = bank[clients, positions]
        return models


def recalibration_order(count: int, size: int) -> Tensor:
    """Places of a client's images ``[count]`` int64, in the order in which statistics are measured, on the CPU.

    The running variance is the mean of the variances within passes, without what passes differ by. In a folder for each
    class, images in the order of files would pass class by class, so several passes have them in random order.

    Args:
        count: number of the client's images.
        size: images that pass at once.
    """
    return torch.arange(count) if count <= size else permutation(fold_key(["recalibration"]), count)


def pool_statistics(weights: Tensor, rows: Tensor, layout: Layout) -> Tensor:
    """As `mix_rows`, but a mixed running variance is that of the pooled distributions: Σ w (var + mean²) - (Σ w mean)².

    >>> import torch
    >>> from fedwca.engine.parameter_layout import Slot
    >>> layout = Layout((Slot("w", (1,), 0),), (Slot("n.running_mean", (1,), 1), Slot("n.running_var", (1,), 2)))
    >>> pool_statistics(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0, 1.0], [3.0, 2.0, 1.0]]), layout)
    tensor([2., 1., 2.])
    """
    mixed = mix_rows(weights, rows)
    add_spread(mixed, mix_rows(weights, square_statistics(rows, layout)), layout)
    return mixed


def square_statistics(rows: Tensor, layout: Layout) -> Tensor:
    """Squares of BatchNorm's statistics, which are the last of a row: ``[R, P] -> [R, P - trained]``."""
    return rows[..., layout.trained :].square()


def add_spread(mixed: Tensor, squares: Tensor, layout: Layout) -> None:
    """Add to running variances, in place, the spread of the means that were mixed.

    Args:
        mixed: mixtures of rows ``[..., P]``.
        squares: the same mixtures of the result of `square_statistics` ``[..., P - trained]``.
        layout: of a row.
    """
    for mean, variance in layout.norms:
        squared = squares[..., mean.start - layout.trained : mean.stop - layout.trained]
        between = squared - mixed[..., mean.start : mean.stop].square()
        mixed[..., variance.start : variance.stop] += between.clamp_min(0)
