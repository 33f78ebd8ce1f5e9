"""Warnings point at the line that called fedwca."""

from collections.abc import Callable

import pytest
import torch

from fedwca.functional import finch
from fedwca.runs.failed_part import naming_failed_part
from fedwca.runs.reporter import SILENT


@pytest.mark.parametrize(
    "call",
    [
        lambda: finch(torch.eye(3), 9),
        lambda: naming_failed_part()(SILENT.warn)("a sentence"),
    ],
    ids=["function", "run"],
)
def test_a_warning_points_outside_of_fedwca(call: Callable[[], object]) -> None:
    with pytest.warns(UserWarning, match=r"a sentence|no level 9") as caught:
        call()
    assert [warning.filename for warning in caught] == [__file__]
