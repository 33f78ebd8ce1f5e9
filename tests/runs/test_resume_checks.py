"""Which run is the same as one that is asked for."""

from __future__ import annotations

from fedwca.config.resolve_config import resolve_plan
from fedwca.runs.reuse_runs import comparable_settings


def test_what_a_preset_says_of_a_training_that_a_run_has_not_makes_no_other_run() -> None:
    """Runs of before 0.2 kept it."""
    now = resolve_plan({"target": "neon"}).config.model_dump(mode="json")
    before = {**now, "source_training": {**now["source_training"], "lr": 0.123}}
    assert comparable_settings(before) == comparable_settings(now)
    other = {**now, "training": {**now["training"], "lr": 0.123}}
    assert comparable_settings(other) != comparable_settings(now)
