"""Settings of a run that do not change its results."""

from __future__ import annotations

SAME_NUMBERS = ("workers", "trials_at_once")
"""Fields of the configuration for how many clients and trials run in parallel: they change the last digits at most."""
