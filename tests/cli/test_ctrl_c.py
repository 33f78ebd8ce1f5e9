"""Ctrl-C ends a command in one sentence, and a run with a summary of what it did."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.read_rounds import read_rounds

from .conftest import SMALL, Run, call

Bench = Callable[..., Run]


def test_stopped_before_the_rounds(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    sentence = f"Stopped; 0 rounds are kept in {folder}{{}}; continue with: fedwca resume {folder}"
    for function, message in (
        ("start_run.load", f"Stopped before the first round; nothing is kept in {folder}, and the same command"),
        ("prepare_run.note_environment", sentence.format("")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"fedwca.runs.{function}", stopped)
            run = bench(out=folder)
        assert (run.code, run.err.count("Stopped"), message in run.err) == (130, 1, True), run.err
    with monkeypatch.context() as patch:
        patch.setattr("fedwca.runs.source_models.source_model", stopped)
        run = call("resume", str(folder))
        assert (run.code, run.err.splitlines()[-1]) == (130, sentence.format(", with a summary"))
        patch.setattr("fedwca.runs.resuming.resume_run.load_same_images", stopped)
        run = call("resume", str(folder))
        assert (run.code, run.err.splitlines()[-1]) == (130, sentence.format(", with a summary"))


def test_a_command_without_a_run_says_that_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedwca.results.find_runs.run_folders", stopped)
    run = call("runs")
    assert (run.code, run.err) == (130, "Stopped.\n")


def test_ctrl_c_ends_a_run_with_a_summary(shades: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # A shell that starts jobs in the background hides Ctrl-C from them: take the handler back.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import fedwca.cli as c; c.main()"
    command = [sys.executable, "-c", code, "bench", "--data", str(shades), *SMALL, "--out", str(folder)]
    command += ["--rounds", "5000", "--baseline", "fedavg"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        rounds, deadline = folder / "rounds.jsonl", time.monotonic() + 200
        while process.poll() is None and time.monotonic() < deadline:
            if rounds.exists() and rounds.read_text().count("\n") >= 3:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    lines = read_rounds(folder)
    assert len(lines) >= 3
    rounds_done = sum(line["round"] >= 0 for line in lines)
    assert f"Stopped; {rounds_done} round" in err
    assert err.rstrip().endswith(f"continue with: fedwca resume {folder}")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"] is False
    assert not math.isnan(summary["methods"]["fedavg"]["mean"])
    assert (folder / "overview.png").exists()
