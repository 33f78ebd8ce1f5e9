"""What all types of JSON output have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

Number = TypeVar("Number")
Percent = float | None
"""An accuracy or another share in percent; null if it could not be measured."""


class PrintedValues(BaseModel):
    """Base of all types; other fields and other types of values are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class SpreadMean(PrintedValues):
    """Mean and standard deviation over runs."""

    mean: float | None
    """Mean over runs. Null if nothing could be measured."""
    std: float | None
    """Standard deviation over runs (ddof 1). Null for a single run."""


class MoreNumbers(PrintedValues, Generic[Number]):
    """Numbers beside the accuracy, where runs have them."""

    f1: Number | None = None
    """Macro F1 score over the test images of all clients together, in percent."""
    worst: Number | None = None
    """Lowest accuracy of a client, in percent."""
    client_std: Number | None = None
    """Standard deviation of the accuracy over clients (ddof 1), in percentage points."""
    calibration_error: Number | None = None
    """Expected calibration error (15 bins) over the test images of all clients together, in percentage points."""


class PrintedTrial(PrintedValues):
    """One run of a method: one trial from one source model."""

    source_model: int
    """Number of the source model, counted from 0."""
    trial: int
    """Number of the trial, counted from 0."""


class TrialMean(PrintedTrial):
    """Accuracy of a method in one run. A run is one trial from one source model."""

    mean: Percent
    """Mean accuracy over clients, in percent. Null if nothing could be measured."""
