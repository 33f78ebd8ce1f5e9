"""Errors of the deal of shards name the partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedwca.errors import UsageError
from fedwca.partitions.shards import Shards


def test_too_few_shards_are_said_to_be_of_the_partition() -> None:
    pool: Any = SimpleNamespace(labels=np.arange(10).repeat(9), groups=np.arange(90), name="x")
    with pytest.raises(UsageError, match=r"partition shards: 2 shards are too few for 10 classes; take more clients"):
        Shards().share_out(pool, 1, np.random.default_rng(0))
