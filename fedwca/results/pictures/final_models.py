"""Data for pictures of the final models, as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Models:
    """One method's clients after the last round, with labels for evaluation only; one numpy array per client."""

    title: str
    """Method and run, in one line."""
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
    """Class ``[N]`` predicted by the model that tables evaluate: after steps of adaptation, if the method has one."""
    confidences: Sequence[Any]
    """Output for the predicted class ``[N]``, 0 to 1."""
    before: Sequence[Any]
    """Features ``[N, q]`` by the model that clients start from."""
    after: Sequence[Any]
    """Features ``[N, q]`` by the model that gives ``predicted``."""
    image_kind: str = "test image"
    """What the images are; where new clients come after the training, those of the clients that train are for
    validation."""
