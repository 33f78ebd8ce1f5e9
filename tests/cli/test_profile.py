"""`fedwca bench --profile`: seconds of the phases and a trace."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedwca.results.phase_seconds import PHASES
from fedwca.runs.profiling import TRACE, Tracer

from .conftest import Run

Bench = Callable[..., Run]


def test_a_run_with_one_round_left_has_its_trace(tmp_path: Path) -> None:
    tracer = Tracer("FedWCA")
    tracer.begin("FedAvg", 5)
    tracer.skip(4)
    assert tracer.write(tmp_path) is None, "of another method"
    tracer.begin("FedWCA", 5)
    tracer.skip(3)
    assert tracer.write(tmp_path) is None, "two rounds are left"
    for _ in range(2):  # of two trials that run together
        tracer.skip(4)
    tracer.round(5)
    assert tracer.write(tmp_path) == tmp_path / TRACE


@pytest.mark.parametrize("trials", [1, 2])
def test_profile_says_where_the_time_went(bench: Bench, tmp_path: Path, trials: int) -> None:
    run = bench("--profile", "--baseline", "fedavg", "--trials", str(trials), out=tmp_path / "run")
    assert run.code == 0, run.err
    profile = json.loads((run.folder / "profile.json").read_text())
    assert set(profile["seconds"]) == {"fedavg", "wca"}
    for seconds in profile["seconds"].values():
        assert seconds["rounds"] == 2 * trials
        assert all(seconds[phase] >= 0 for phase in PHASES)
        assert seconds["round"] >= seconds["group"] + seconds["mix"]
    trace = json.loads(gzip.decompress((run.folder / profile["trace"]).read_bytes()))
    events = [event for event in trace["traceEvents"] if "convolution_backward" in event.get("name", "")]
    assert events, "the workers' threads are in the trace"
    assert "Seconds a round" in run.out
    assert "FedWCA" in profile["of"]
