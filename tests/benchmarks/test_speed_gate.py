"""The speed gate: when it asks the engine of an earlier commit, and what it says where that cannot be asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .scripts import BENCHMARKS, script

gate, gated_engine = script("test_gate"), script("gated_engine")


def verdict(passes: bool) -> Any:
    return gate.Verdict(passes, [1.0 if passes else 1.4])


@pytest.mark.parametrize(
    ("beside_hand_written", "beside_commit", "shut"), [(True, None, False), (False, True, False), (False, False, True)]
)
def test_an_engine_over_the_limit_is_held_against_itself(
    monkeypatch: pytest.MonkeyPatch, beside_hand_written: bool, beside_commit: bool | None, shut: bool
) -> None:
    def ask_the_commit(kind: str, commit: str) -> Any:
        assert beside_commit is not None, "it was asked without need"
        assert kind == "loop"
        assert commit
        return verdict(beside_commit)

    monkeypatch.setattr(gate, "beside_hand_written", lambda kind, limit: verdict(beside_hand_written))
    monkeypatch.setattr(gate, "beside_commit", ask_the_commit)
    if shut:
        with pytest.raises(AssertionError, match=r"loop over itself at .*: \[1.4\], the limit is 1.10"):
            gate.test_an_engine_takes_no_fifth_more_than_it_took("loop")
    else:
        gate.test_an_engine_takes_no_fifth_more_than_it_took("loop")


def test_an_alarm_stays_where_the_commit_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: str, commit: str) -> Any:
        raise SystemExit(f"no commit {commit!r} in this repository")

    monkeypatch.setattr(gate, "beside_hand_written", lambda kind, limit: verdict(False))
    monkeypatch.setattr(gate, "beside_commit", refuse)
    with pytest.raises(pytest.fail.Exception, match="whether the machine is the cause cannot be told: no commit"):
        gate.test_an_engine_takes_no_fifth_more_than_it_took("stacked")


@pytest.mark.parametrize("kind", gated_engine.WORKERS)
def test_a_usual_ratio_was_measured_as_the_gate_measures(kind: str) -> None:
    assert json.loads(gate.FILE.read_text())["engines"][kind]["conditions"] == gate.conditions(), (
        "measure the gate again: python benchmarks/gate_runs.py"
    )


def test_an_engine_that_is_not_measured_keeps_its_part_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, file = script("gate_runs"), tmp_path / "gate.json"
    stacked = {"ratio": 1.1, "conditions": {"clients": 3}}
    file.write_text(json.dumps({"engines": {"stacked": stacked, "loop": {}}}))
    loop = {"ratio": 1.2, "conditions": runs.conditions()}
    monkeypatch.setattr(runs, "FILE", file)
    monkeypatch.setattr(runs, "provenance", lambda _: {"commit": "a commit"})
    monkeypatch.setattr(runs, "measure", lambda *_: [loop])
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["gate_runs.py", "loop"])
    runs.main()
    result = json.loads(file.read_text())
    assert result.pop("engines") == {"stacked": stacked, "loop": loop}
    assert set(result) == {"what"}


def test_an_engine_of_a_checkout_is_timed_in_a_process_of_its_own(tmp_path: Path) -> None:
    with gated_engine.seconds_at(str(BENCHMARKS.parent), "loop") as seconds:
        assert min(seconds(), seconds()) > 0
    (tmp_path / "fedwca").mkdir()
    (tmp_path / "torch.py").write_text("raise SystemExit\n")  # it ends before it has loaded the real one
    with (
        pytest.raises(SystemExit, match=r"the loop engine of commit .* cannot be timed"),
        gated_engine.seconds_at(str(tmp_path), "loop") as seconds,
    ):
        seconds()
