"""The stacked engine: every step trains all clients of a slice at once."""

from __future__ import annotations

from fedwca.engine.stacked.engine import Stacked

__all__ = ["Stacked"]
