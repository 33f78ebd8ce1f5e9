"""Federated learning without labels: FedWCA, its rivals, and the bench that compares them."""

from __future__ import annotations

from fedwca._version import __version__

__all__ = ["__version__"]
