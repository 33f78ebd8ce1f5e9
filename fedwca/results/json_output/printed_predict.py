"""Output of ``fedwca predict``."""

from __future__ import annotations

from fedwca.results.json_output.printed_values import PrintedValues


class PredictedClass(PrintedValues):
    """A class and how probable a model holds it for an image."""

    label: str
    """Name of the class."""
    probability: float
    """Probability of the class, 0 to 1. It is not calibrated."""


class PrintedPrediction(PrintedValues):
    """Prediction for one image, in the list that ``fedwca predict --json`` prints."""

    file: str
    """Path of the image; in an archive with its number there."""
    best: list[PredictedClass]
    """The most probable classes, as many as ``--top`` asks for, the most probable one first. Empty if the image could
    not be read."""
    error: str | None
    """Why the image could not be read. Null if it was."""
