"""The reference method, FedAvg: summaries and comparisons take differences to it unless another is named."""

from __future__ import annotations

from collections.abc import Iterable

REFERENCES = ("fedavg", "fedavg_labelled")
"""Names of FedAvg on unlabeled and on labelled clients."""


def reference_among(names: Iterable[str]) -> str | None:
    """The first of the given methods that is FedAvg, with which others are compared; None if there is none.

    >>> reference_among(["mdmgb", "fedavg_labelled"])
    'fedavg_labelled'
    """
    return next((name for name in names if name in REFERENCES), None)
