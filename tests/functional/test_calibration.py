from __future__ import annotations

import math

import pytest
import torch

from fedwca.errors import UsageError
from fedwca.functional import expected_calibration_error


def test_calibration_error_by_hand() -> None:
    # Two bins: (0, 0.5] holds 0.5 and 0.3, one right: |0.5 - 0.4| of 2 images; (0.5, 1] holds 0.9, 0.7 and 0.8, two
    # right: |2/3 - 0.8| of 3.
    right = torch.tensor([True, False, True, True, False])
    confidences = torch.tensor([0.5, 0.3, 0.9, 0.7, 0.8], dtype=torch.float64)
    error = expected_calibration_error(right, confidences, bins=2)
    assert float(error) == pytest.approx((2 * 0.1 + 3 * (0.8 - 2 / 3)) / 5)


def test_no_bins_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 1, not 0"):
        expected_calibration_error(torch.ones(1), torch.ones(1), bins=0)


def test_default_is_fifteen_bins() -> None:
    generator = torch.Generator().manual_seed(0)
    confidences = torch.rand(200, dtype=torch.float64, generator=generator)
    right = torch.rand(200, generator=generator) < 0.5
    expected = 0.0
    for low in range(15):
        in_bin = (confidences > low / 15) & (confidences <= (low + 1) / 15)
        if in_bin.any():
            gap = float(right[in_bin].double().mean() - confidences[in_bin].mean())
            expected += float(in_bin.double().mean()) * abs(gap)
    assert float(expected_calibration_error(right, confidences)) == pytest.approx(expected)


def test_ends_and_what_is_no_number() -> None:
    sure = torch.ones(3)
    assert float(expected_calibration_error(torch.ones(3), sure)) == 0
    assert float(expected_calibration_error(torch.zeros(3), sure)) == 1
    assert float(expected_calibration_error(torch.ones(1), torch.zeros(1))) == 1
    assert math.isnan(expected_calibration_error(torch.zeros(0), torch.zeros(0)))
    assert math.isnan(expected_calibration_error(torch.ones(1), torch.tensor([math.nan])))
