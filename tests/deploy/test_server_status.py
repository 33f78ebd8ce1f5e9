"""A server's log and status are read while it writes them, and shown as lines or as one line that changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedwca.cli import federation_progress
from fedwca.cli.federation_progress import FederationProgress
from fedwca.deploy.server_status import (
    COMPLETE,
    FAILED,
    LOG,
    STATUS,
    LogLine,
    LogTail,
    ServerStatus,
    read_status,
    write_status,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[logging.Logger]:
    """A logger that writes as the server's app does, after a line of an earlier run."""
    (tmp_path / LOG).write_text("2026-01-02 03:04:05,678 INFO round 7 is done\n")
    handler = logging.FileHandler(tmp_path / LOG)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.Logger("a server")
    logger.addHandler(handler)
    yield logger
    handler.close()


def test_a_log_is_read_as_it_grows(tmp_path: Path, log: logging.Logger) -> None:
    tail = LogTail(tmp_path)
    assert tail.lines() == []
    log.info("3 of 4 clients are connected")
    log.warning("round 0: client 1 (ab) refused: holds\n9 bytes")
    refused = LogLine("WARNING", "round 0: client 1 (ab) refused: holds")
    assert tail.lines() == [LogLine("INFO", "3 of 4 clients are connected"), refused, LogLine("", "9 bytes")]
    with (tmp_path / LOG).open("a") as file:
        file.write("half a")
        file.flush()
        assert tail.lines() == []
        file.write(" line\n")
    assert tail.lines() == [LogLine("", "half a line")]
    (tmp_path / LOG).write_text("new\n")
    assert tail.lines() == [LogLine("", "new")]
    assert LogTail(tmp_path / "gone").lines() == []


def test_a_line_longer_than_what_is_read_at_once_comes_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogTail, "MOST", 4)
    tail = LogTail(tmp_path)
    (tmp_path / LOG).write_text("long line\nnext\n")
    assert [line.text for _ in range(6) for line in tail.lines()] == ["long", " lin", "e", "next", ""]
    with (tmp_path / LOG).open("a", encoding="utf-8") as file:
        file.write("aßé€𝛼\n")
    assert [line.text for _ in range(6) for line in tail.lines()] == ["aß", "é", "€", "𝛼", ""]


def test_a_status_is_read_whole_or_not(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    write_status(tmp_path, ServerStatus(3, 4, done=1, connected=2))
    assert read_status(tmp_path) == ServerStatus(3, 4, done=1, connected=2)
    for damaged in ("{", "[]", '{"rounds": 1}', '{"rounds": "x", "clients": 2}'):
        (tmp_path / STATUS).write_text(damaged)
        assert read_status(tmp_path) is None
    write_status(tmp_path / STATUS / "no folder", ServerStatus(3, 4))  # raises nothing


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_is_shown_as_it_goes_on(
    tmp_path: Path,
    log: logging.Logger,
    terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(federation_progress, "LOOK", 0.01)
    with FederationProgress(tmp_path) as progress:
        log.info("4 of 4 clients are connected")
        log.warning("round 0: client 2 (\x1b[2J) refused: why")
        write_status(tmp_path, ServerStatus(3, 4, connected=4, asked=4))
        progress.wait(0.3)
        log.info("round 0 is done")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert r"Warning: round 0: client 2 (\x1b[2J) refused: why" in printed.err
    assert ("4 of 4 clients are connected" in printed.err) == (not terminal)
    assert ("round 0 is done" in printed.err) == (not terminal)
    assert ("0 of 3 rounds done; 4 of 4 clients connected; 4 clients at work" in printed.err) == terminal
    assert "round 7" not in printed.err


@pytest.mark.timeout(60)
@pytest.mark.parametrize("last", [f"{COMPLETE} after 3 rounds", f"{FAILED}: FedwcaError: why"])
def test_a_run_that_has_ended_is_not_waited_for(tmp_path: Path, log: logging.Logger, last: str) -> None:
    progress = FederationProgress(tmp_path)
    log.info(last)
    progress.wait(600)
    assert progress.last == last


def test_a_run_that_does_not_begin_is_warned_of_once(
    tmp_path: Path, log: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(federation_progress, "SLOW", 0.0)
    late, begun = FederationProgress(tmp_path), FederationProgress(tmp_path)
    for _ in range(2):
        late.look()
    assert capsys.readouterr().err.count("the server has not begun the run in 0 s; what fedwca server prints") == 1
    log.info("4 of 4 clients are connected")
    begun.look()
    assert "has not begun" not in capsys.readouterr().err
