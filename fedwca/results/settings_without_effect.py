"""Which settings of a run change none of its numbers."""

from __future__ import annotations

SAME_NUMBERS = ("workers", "trials_at_once")
"""Fields of a run's configuration that say how many clients and trials are at work at a time: last digits at most."""
