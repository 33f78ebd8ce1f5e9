"""Output of ``fedwca data check``."""

from __future__ import annotations

from fedwca.results.json_output.printed_values import PrintedValues


class CheckedDataset(PrintedValues):
    """Output of ``fedwca data check NAME --json``."""

    name: str
    """Name of the data set."""
    classes: list[str]
    """Names of the classes, in the order of a model's outputs."""
    counts: dict[str, list[int]]
    """Number of images of each class, in the order of ``classes``, by domain."""
    expected: dict[str, int] | None
    """Published number of images, by domain. Null if none is known."""
    verified: list[str]
    """Paths, in the data set's folder, of the files that have the MD5 of the published ones."""
    digest: str
    """Digest of names, classes and images."""
