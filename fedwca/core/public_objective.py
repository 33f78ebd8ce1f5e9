"""Objectives on public images, which all clients have and which have no labels, before training on their own images."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from fedwca.core.interfaces import Objective


class PublicObjective(Objective):
    """Learns at the start of each round but the first, from the server's summary of all clients' predictions.

    `collect` gets the trained model's predictions of the public images, where it ``adapts`` with ``adapted_logits``.
    `pool` turns those of all clients into tensors ``[N, M]`` by name, one row for each public image, which the loss
    reads as ``batch.reference_logits``. New clients learn in the same way, from models that nobody trained, before
    they adapt. Models stay with their clients. Source: Li and Wang (FedMD), 2019; FedTTA, Algorithm 2.
    """

    trained_on: ClassVar[Literal["own", "public"]] = "public"

    passes: PositiveInt = 1
    """Passes over the public images at the start of a round."""
    new_passes: PositiveInt = 2
    """Passes over the public images by a new client."""
    batch_size: int = Field(100, ge=2)
    """Public images per step."""
