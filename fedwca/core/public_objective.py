"""What clients minimise on public images, which everybody has and nobody labels, before they train on their own."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from fedwca.core.interfaces import Objective


class PublicObjective(Objective):
    """Learns, at the start of each round but the first, from what the server makes of all clients' predictions.

    ``collect`` is given the predictions of the public images by the model that the round has trained, ``adapted`` ones
    beside them. What ``pool`` makes of all clients' is one value ``[N, M]`` an image and name, and reaches the loss as
    ``batch.reference_logits``. New clients learn likewise, from models that nobody trained, before they adapt. Models
    stay with their clients. Source: Li and Wang (FedMD), 2019; FedTTA, Algorithm 2.
    """

    on: ClassVar[Literal["own", "public"]] = "public"

    passes: PositiveInt = 1
    """Passes over the public images at the start of a round."""
    new_passes: PositiveInt = 2
    """Passes of a new client."""
    batch_size: int = Field(100, ge=2)
    """Public images per step."""
