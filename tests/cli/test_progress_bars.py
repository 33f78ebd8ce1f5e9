"""Progress on a terminal: bars of a run on several widths, of which no number is cut, and what takes long to begin."""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from fedwca.cli import progress_bars
from fedwca.cli.progress_bars import shorten_label, watching
from fedwca.cli.terminal import Waiting
from fedwca.results.read_run_files import read_notes

from .conftest import Run

LONG = "fedwca:ta=0.05,tb=0.1/clusterer=finch:signature=2/objective=shot, run 1 of 2"
CONFIG = SimpleNamespace(source_models=1, trials=2, source_training=SimpleNamespace(epochs=4))
PLAN: Any = SimpleNamespace(config=CONFIG, methods=[("wca", 400)])


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> io.StringIO:
    text = io.StringIO()
    console = Console(file=text, width=request.param, force_terminal=True, color_system=None, legacy_windows=False)
    monkeypatch.setattr(progress_bars, "make_console", lambda stderr: console)
    return text


@pytest.mark.parametrize("terminal", [70, 80, 110], indirect=True)
@pytest.mark.parametrize("label", ["FedWCA, moments, run 1 of 2", LONG])
def test_the_last_bars_show_counts_accuracy_and_time_left(terminal: io.StringIO, label: str) -> None:
    with watching(PLAN, quiet=False) as progress:
        progress.source_epoch(3, 4, 71.25)
        progress.method_start(label, 400, 12)  # the other source models are in the cache
        progress.skipped_rounds(99, 12)
        progress.round_done(100, 45.25)
    _, _, rounds = terminal.getvalue().rpartition("all rounds")
    assert "source model" not in rounds, "it goes when it is done"
    for part in ("100/800", "1188/4800", "round 100: 45.2 %", ", run 1 of 2"):
        assert part in rounds
    assert len(re.findall(r"left (?:\d:\d\d:\d\d|-:--:--)", rounds)) == 2


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_what_has_no_accuracy_is_not_called_done(terminal: io.StringIO) -> None:
    with watching(PLAN, quiet=False) as progress:
        progress.method_end("FedAvg", 45.25)
        progress.method_end("FedWCA", math.nan)
    assert "FedAvg: done, 45.2 %" in terminal.getvalue()
    assert "FedWCA: ended" in terminal.getvalue()


def test_time_left_is_not_of_central_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])
    with watching(PLAN, quiet=False) as progress:
        progress.method_start("Source-only", 0, 12)
        seconds[0] = 100.0
        progress.method_start("SFDA", 400, 12)
        seconds[0] = 102.0
        progress.round_done(1, 45.25)
    assert "SFDA: round 1 of 400, 45.2 %; about 1598 s left" in capsys.readouterr().err, "2 s for each of 799"


@pytest.mark.parametrize("number", [", run 1 of 2", ", runs 1, 3 of 12", ", runs 1 to 3 of 5", ""])
def test_a_label_keeps_its_number(number: str) -> None:
    assert shorten_label(f"FedWCA{number}", 40) == f"FedWCA{number}"
    short = shorten_label("模型" * 30 + number, 26)
    assert short.startswith("模型")
    assert short.endswith(f"…{number}")
    assert cell_len(short) <= 26


def test_progress_on_a_terminal(bench: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    run = bench("--baseline", "none", "--set", "source_training.lr=0.0123")
    assert run.code == 0
    for part in ("all rounds", "source model", "clients/s", "round 2: "):
        assert part in run.err
    assert "\x1b[1A" not in run.out


def test_bars_fit_a_narrow_terminal(bench: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    run = bench("--baseline", "none", "--trials", "2", "--tag", "lr", "--tag", "night", "--note", "why", columns=80)
    assert read_notes(run.folder) == {"note": "why", "tags": ["lr", "night"]}
    assert "round 2: " in run.err
    assert "…" not in run.err
    assert "clients/s" not in run.err
    assert "FedWCA, moments, run 2 of 2 " in run.err


def test_a_command_that_takes_long_to_begin_says_so_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(Waiting, "AFTER", 0.0)
    waiting = Waiting()
    with waiting.showing("loading"):
        deadline, shown = time.monotonic() + 60, ""
        while "loading" not in shown and time.monotonic() < deadline:
            time.sleep(0.01)
            shown += capsys.readouterr().err
        assert "loading" in shown
        assert shown.isascii()
        waiting.end()
        capsys.readouterr()
    monkeypatch.setenv("FORCE_COLOR", "")
    monkeypatch.setattr("fedwca.cli.terminal.Timer", pytest.fail)
    with waiting.showing("loading"):
        pass
    assert capsys.readouterr().err == ""
