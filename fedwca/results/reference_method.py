"""The reference method: FedAvg, which summaries and comparisons take differences to where no other is named."""

from __future__ import annotations

from collections.abc import Iterable

REFERENCES = ("fedavg", "fedavg_labelled")
"""Names of FedAvg, of unlabeled clients and of labelled ones."""


def reference_among(names: Iterable[str]) -> str | None:
    """The one of some methods that others are compared with; None where FedAvg is not among them.

    >>> reference_among(["mdmgb", "fedavg_labelled"])
    'fedavg_labelled'
    """
    return next((name for name in names if name in REFERENCES), None)
