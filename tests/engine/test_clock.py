"""Seconds by phase are summed up when they are read."""

from __future__ import annotations

import pickle

import pytest
import torch

from fedwca.engine.timing import Clock, Lap, Phases


def test_laps_add_up_by_phase_and_are_shared_out() -> None:
    phases = Phases([Lap("train", 1.0, 4.0, 0.5), Lap("label", 4.0, 5.0, 1.0), Lap("train", 5.0, 6.0, 1.0)])
    assert dict(phases) == {"train": 2.5, "label": 1.0}
    assert len(phases) == 2
    assert dict(phases.shared(2)) == {"train": 1.25, "label": 0.5}
    with pytest.raises(KeyError):
        phases["evidence"]
    # As uploads travel between ranks.
    assert pickle.loads(pickle.dumps(phases.shared(2))) == {"train": 1.25, "label": 0.5}


def test_what_is_measured_later_counts_as_well() -> None:
    clock = Clock(torch.device("cpu"))
    seconds = clock.seconds
    assert dict(seconds) == {}
    with clock.clock("label"):
        pass
    clock.lap("train", clock.mark())
    assert list(seconds) == ["label", "train"]
    assert all(value >= 0 for value in seconds.values())
