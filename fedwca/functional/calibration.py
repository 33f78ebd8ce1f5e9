"""Calibration: how far a model's confidence is from its accuracy."""

from __future__ import annotations

from torch import Tensor

from fedwca.errors import UsageError


def expected_calibration_error(right: Tensor, confidences: Tensor, bins: int = 15) -> Tensor:
    """Average |accuracy - mean confidence| over bins of confidence, weighted by their numbers of images.

    Bins are equally wide; each holds its upper end. Source: Guo et al., ICML 2017, eq. 3 (15 bins, as in their tables).

    Args:
        right: ``[N]``, 1 for an image that is predicted right, else 0.
        confidences: ``[N]``, the output of the predicted class, 0 to 1.
        bins: number of bins.

    Returns:
        ``[]`` float64, 0 (as sure as right) to 1; NaN without images.

    Raises:
        UsageError: there is no bin.

    >>> import torch
    >>> expected_calibration_error(torch.tensor([1, 0]), torch.tensor([0.75, 0.75]))
    tensor(0.2500, dtype=torch.float64)
    """
    if bins < 1:
        raise UsageError(f"bins must be at least 1, not {bins}")
    scores = confidences.double()
    bin_of = (scores * bins).ceil().sub(1).clamp(0, bins - 1).nan_to_num().long()
    gaps = scores.new_zeros(bins).index_add(0, bin_of, right.double() - scores)
    # Accuracy and mean confidence are both divided by the bin's number of images, which cancels with its weight.
    return gaps.abs().sum() / len(scores)
