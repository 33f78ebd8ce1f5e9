"""Output of ``fedwca join``."""

from __future__ import annotations

from typing import Any

from fedwca.results.json_output.printed_values import PrintedValues


class AdaptationSteps(PrintedValues):
    """Gradient steps that a model took on a loss of its outputs."""

    name: str
    """Name of the adaptation."""
    fields: dict[str, Any]
    """Fields of the adaptation, by name."""
    steps: int
    """Number of steps that were computed."""
    taken: int
    """Number of steps after which the model was taken. 0 means the model as it was sent."""
    entropies: list[float | None]
    """Mean entropy of the outputs in nats: of the model as it was sent, then after each step."""


class PrintedJoin(PrintedValues):
    """Output of ``fedwca join --json``."""

    cluster: int
    """Number of the client's cluster, counted from 0."""
    by: str
    """How the cluster was found. update: nearest to the client's model update. alignment: best alignment of features.
    loss: lowest loss. alone: there is only one cluster. own: each client is a cluster of its own."""
    scores: list[float | None]
    """Score of each cluster: a distance, a cosine or a loss, depending on ``by``."""
    weights: list[float]
    """Weight of each server model in the model that the client started from. All 0 if it started from an untrained
    model."""
    report: dict[str, list[float]]
    """Values that the client would upload beside its model, by name."""
    epochs: int
    """Number of epochs that the client trained."""
    adaptation: AdaptationSteps | None
    """Adaptation of the client's model. Null if there was none."""
    size: int | None = None
    """Index of the model's size, counted from 0. Only a client that started from an untrained model has it."""
    trust: float | None = None
    """Mutual information of the source model's outputs on the client's images, as a share of its maximum: 0 to 1. Below
    0.5, most of the predicted labels may be wrong. Null if clients train the whole network."""
    labels: dict[str, int]
    """Number of images by predicted class."""
    files: list[str]
    """Paths of the written files: the model, its card and the predictions."""
