"""The stacked engine: every step trains all clients of a slice at once."""

from __future__ import annotations

from fedwca.engine.stacked.engine import StackedEngine
from fedwca.engine.stacked.trials_together import StackedTrials, can_share_step

__all__ = ["StackedEngine", "StackedTrials", "can_share_step"]
