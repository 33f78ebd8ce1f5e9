"""The stacked engine: every step trains all clients of a slice at once."""

from __future__ import annotations

from fedwca.engine.stacked.engine import Stacked
from fedwca.engine.stacked.trials import StackedTrials, alike

__all__ = ["Stacked", "StackedTrials", "alike"]
