"""What pictures of the final models are made from, as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Models:
    """One method's clients after the last round, with what only an evaluation may know; one numpy array a client."""

    title: str
    """Method and run, in a line."""
    classes: Sequence[str]
    domains: Sequence[str]
    """True domain of each client, K names."""
    labels: Sequence[int]
    """Cluster of each client."""
    images: Sequence[Any]
    """Test images ``[N, H, W, 3]`` uint8."""
    truth: Sequence[Any]
    """Class of each test image ``[N]``."""
    predicted: Sequence[Any]
    """Class that the model tables measure gives ``[N]``: after an adaptation's steps, where the method has one."""
    confidences: Sequence[Any]
    """The output for that class ``[N]``, 0 to 1."""
    before: Sequence[Any]
    """Features by the model that clients begin with ``[N, q]``."""
    after: Sequence[Any]
    """Features by the model behind ``predicted`` ``[N, q]``."""
