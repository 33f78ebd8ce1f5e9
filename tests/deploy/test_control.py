"""Requests to a server that is not there yet, or that does not always answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedwca.deploy.flower import server_control as control
from fedwca.deploy.flower.flwr_cli import FlwrCli, connect
from fedwca.errors import FedwcaError

FLWR = FlwrCli({})
"""Flower's command; it is never started."""


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(control.time, "sleep", slept.append)
    return slept


def asked(failures: int) -> tuple[list[int], Callable[[], None]]:
    """A request that fails so many times before it succeeds, with the list of its calls so far."""
    calls: list[int] = []

    def ask() -> None:
        calls.append(len(calls))
        if len(calls) <= failures:
            raise FedwcaError(f"no answer {len(calls)}")

    return calls, ask


def test_a_server_that_comes_later_is_waited_for_and_that_is_told_once(pauses: list[float]) -> None:
    calls, ask = asked(3)
    messages: list[str] = []
    control.retry(ask, messages.append)
    assert (len(calls), len(pauses), messages) == (4, 3, ["The server does not answer yet; trying again"])


def test_nothing_is_told_of_a_server_that_is_there(pauses: list[float]) -> None:
    calls, ask = asked(0)
    messages: list[str] = []
    control.retry(ask, messages.append)
    assert (len(calls), pauses, messages) == (1, [], [])


def test_a_server_that_never_comes(pauses: list[float]) -> None:
    calls, ask = asked(99)
    with pytest.raises(FedwcaError, match="no answer 5"):
        control.retry(ask, tries=5)
    assert (len(calls), len(pauses)) == (5, 4)


def test_the_settings_of_flowers_command_are_whole_whenever_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwca.deploy.flower.processes.find_flwr", lambda: Path("flwr"))
    connect(tmp_path, "127.0.0.1:1", insecure=True)
    connect(tmp_path, "127.0.0.1:2", insecure=True)
    assert [path.name for path in (tmp_path / "flwr").iterdir()] == ["config.toml"]
    assert 'address = "127.0.0.1:2"' in (tmp_path / "flwr" / "config.toml").read_text()


STALLS = "flwr list did not answer"
RUNNING = {"status": "running"}
FINISHED = {
    "status": "finished:completed",
    "network-traffic": {"inbound-bytes": 5, "outbound-bytes": 7},
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> Callable[..., list[list[str]]]:
    """Stand in for a server that gives these answers in turn, the last one again and again.

    An answer is a state of the run, `STALLS` or an error's text. The list that is returned holds the commands so far.
    """

    def build(*states: dict[str, object] | str) -> list[list[str]]:
        commands: list[list[str]] = []

        def run(self: FlwrCli, arguments: list[str], timeout: float) -> tuple[int, str, str]:
            state = states[min(len(commands), len(states) - 1)]
            commands.append(arguments)
            if state == STALLS:
                raise FedwcaError(STALLS)
            if isinstance(state, str):
                return 1, "", state
            return 0, json.dumps({"success": True, "runs": [state]}), ""

        monkeypatch.setattr(FlwrCli, "_run", run)
        return commands

    return build


def test_a_status_call_that_stalls_or_fails_is_tried_again(
    server: Callable[..., list[list[str]]], pauses: list[float]
) -> None:
    # Failures in a row are fewer than it takes to give up; failures in all are more.
    commands = server(*[STALLS, "no route", STALLS, "no route", RUNNING] * 3, FINISHED)
    assert control.watch_run("7", FLWR, 1e6) == ("completed", 5, 7)
    assert (len(commands), len(pauses)) == (16, 15)
    assert commands[0] == ["list", "--run-id", "7", "fedwca", "--format", "json"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (STALLS, STALLS),
        ("no route", "flwr list --run-id failed: no"),
    ],
)
def test_a_server_that_never_says_how_a_run_stands(
    server: Callable[..., list[list[str]]], pauses: list[float], state: str, why: str
) -> None:
    commands = server(RUNNING, state)
    with pytest.raises(FedwcaError, match="run 7 may still go on, but the server was asked 5 times") as raised:
        control.watch_run("7", FLWR, 1e6)
    assert why in str(raised.value)
    assert (len(commands), len(pauses)) == (6, 5)


def test_a_run_whose_log_has_ended_is_not_asked_for_again(
    server: Callable[..., list[list[str]]], pauses: list[float]
) -> None:
    commands = server(RUNNING, "no route")
    with pytest.raises(FedwcaError, match="run 7 has ended, and its server does not answer; start the server again"):
        control.watch_run("7", FLWR, 1e6, ended=lambda: True)
    assert (len(commands), len(pauses)) == (2, 1)


def test_a_run_that_a_new_server_does_not_know_is_not_waited_for(
    server: Callable[..., list[list[str]]], pauses: list[float]
) -> None:
    server(RUNNING, "no route", "Displaying information for run ID 7...\n\n[code: 16] Run ID not found.")
    with pytest.raises(FedwcaError, match=r"^the server was started anew during run 7; another run goes on after"):
        control.watch_run("7", FLWR, 1e6)
    assert len(pauses) == 2


NOBODY = """Using SuperLink: fedwca (127.0.0.1:8000)
 Listing all runs...

Connection to the SuperLink is unavailable. Please check your network connection and 'address' in the SuperLink
connection configuration."""


def test_a_server_that_is_away_is_told_in_a_sentence(server: Callable[..., list[list[str]]]) -> None:
    server(NOBODY)
    with pytest.raises(FedwcaError, match=r"^no server of this deployment answers; is it running, at [^\n]*$"):
        control.stop_runs(FLWR)


def test_runs_that_have_not_ended_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"run-id": 7, "status": "running"}, {"run-id": 8, "status": "finished:completed"}]
    commands: list[list[str]] = []

    def answer(self: FlwrCli, arguments: list[str]) -> dict[str, Any]:
        commands.append(arguments)
        return {"success": True, "runs": [*rows, {"run-id": 9, "status": "pending"}]}

    monkeypatch.setattr(FlwrCli, "call", answer)
    assert control.stop_runs(FLWR) == ["7", "9"]
    assert commands == [["list", "fedwca"], ["stop", "7", "fedwca"], ["stop", "9", "fedwca"]]


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_that_ends_before_it_is_stopped(monkeypatch: pytest.MonkeyPatch, ended: bool) -> None:
    row = {"run-id": 7, "status": "running"}

    def answer(self: FlwrCli, arguments: list[str]) -> dict[str, Any]:
        if arguments[0] == "stop":
            row["status"] = "finished:completed" if ended else "running"
            raise FedwcaError("flwr stop 7 failed: no")
        return {"success": True, "runs": [row]}

    monkeypatch.setattr(FlwrCli, "call", answer)
    if ended:
        assert control.stop_runs(FLWR) == []
    else:
        with pytest.raises(FedwcaError, match="flwr stop 7 failed"):
            control.stop_runs(FLWR)
