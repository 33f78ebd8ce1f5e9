"""Differentiable distances between the features of domains, as training losses; for batches without padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import length_of_rows


def multi_kernel_mmd(
    x: Tensor,
    y: Tensor,
    factors: Sequence[float] = (0.25, 0.5, 1, 2, 4),
    bandwidth: float | Tensor | None = None,
) -> Tensor:
    """Compute the squared maximum mean discrepancy with a mean of Gaussian kernels; differentiable.

    The kernel is the mean over factors of exp(-d² / (factor·bandwidth)), d the distance of two rows. Pairs of a row
    with itself count, as in the paper.

    Source: SFDA, eqs. 2-4, squared; DAN (Long et al., ICML 2015).

    Args:
        x: ``[N, q]``.
        y: ``[L, q]``.
        factors: factors of the bandwidth, above 0.
        bandwidth: in units of the features squared; None: the mean d² over pairs of different rows of x and y
            together, as a constant.

    Returns:
        ``[]`` from 0 to 2, no unit; 0 where all rows are one point.

    Raises:
        UsageError: shapes do not fit, a side is empty, or a factor or the bandwidth is not positive.

    >>> multi_kernel_mmd(torch.tensor([[0.0]]), torch.tensor([[1.0]]), factors=[1.0], bandwidth=1.0)  # 2 - 2/e
    tensor(1.2642)
    """
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not len(x) or not len(y):
        raise UsageError(f"expected rows [N, q] and [L, q], got {list(x.shape)} and {list(y.shape)}")
    if not factors or min(factors) <= 0:
        raise UsageError(f"factors of the bandwidth must be above 0, not {list(factors)}")
    if isinstance(bandwidth, (int, float)) and bandwidth <= 0:
        raise UsageError(f"the bandwidth must be above 0, not {bandwidth}")
    rows = torch.cat([x, y])
    # This changes no distance, and makes rows that are all one point exactly 0.
    rows = rows - rows[0].detach()
    lengths = rows.square().sum(1)
    squares = (lengths[:, None] + lengths - 2 * rows @ rows.mT).clamp_min(0)
    diagonal = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    squares = squares.masked_fill(diagonal, 0)
    if bandwidth is None:
        bandwidth = squares.detach().sum() / (len(rows) * (len(rows) - 1))
        bandwidth = torch.where(bandwidth > 0, bandwidth, 1)
    scaled = squares / bandwidth
    kernel = torch.stack([(-scaled / factor).exp() for factor in factors]).mean(0)
    n = len(x)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


def moment_distance(sources: Sequence[Tensor], target: Tensor, order: int = 2) -> Tensor:
    """Sum the distances of raw moments between sources and target, and between pairs of sources; differentiable.

    The sum over i = 1…order of mean over k of |E x_k^i - E x_T^i| and of mean over pairs k < l of |E x_k^i - E x_l^i|,
    in Euclidean length.

    Source: M3SDA (Peng et al., ICCV 2019), the moment distance, eq. 1.

    Args:
        sources: for each source its rows ``[N_k, q]``.
        target: ``[N, q]``.
        order: the highest moment, at least 1.

    Returns:
        ``[]`` in units of the features and of their powers; the gradient is 0 where moments are equal.

    Raises:
        UsageError: there is no source, or the order is below 1.

    >>> one, two, target = (torch.tensor([[value]]) for value in (1.0, 2.0, 0.0))
    >>> moment_distance([one, two], target, order=1)  # (1 + 2) / 2 + 1
    tensor(2.5000)
    """
    if not sources:
        raise UsageError("there is no source to compare with the target")
    if order < 1:
        raise UsageError(f"the order must be at least 1, not {order}")
    first, second = torch.triu_indices(len(sources), len(sources), 1, device=target.device)
    total = target.new_zeros(())
    for power in range(1, order + 1):
        moments = torch.stack([rows.pow(power).mean(0) for rows in sources])
        total = total + length_of_rows(moments - target.pow(power).mean(0)).mean()
        if len(sources) > 1:
            total = total + length_of_rows(moments[first] - moments[second]).mean()
    return total
