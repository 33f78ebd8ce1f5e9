"""Asking a server that is not there yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedwca.deploy.flower import control
from fedwca.errors import FedwcaError


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(control.time, "sleep", found.append)
    return found


def asked(failures: int) -> tuple[list[int], Callable[[], None]]:
    calls: list[int] = []

    def ask() -> None:
        calls.append(len(calls))
        if len(calls) <= failures:
            raise FedwcaError(f"no answer {len(calls)}")

    return calls, ask


def test_a_server_that_comes_later_is_waited_for_and_that_is_told_once(pauses: list[float]) -> None:
    calls, ask = asked(3)
    told: list[str] = []
    control.patiently(ask, told.append)
    assert (len(calls), len(pauses), told) == (4, 3, ["The server does not answer yet; trying again"])


def test_nothing_is_told_of_a_server_that_is_there(pauses: list[float]) -> None:
    calls, ask = asked(0)
    told: list[str] = []
    control.patiently(ask, told.append)
    assert (len(calls), pauses, told) == (1, [], [])


def test_a_server_that_never_comes(pauses: list[float]) -> None:
    calls, ask = asked(99)
    with pytest.raises(FedwcaError, match="no answer 5"):
        control.patiently(ask, tries=5)
    assert (len(calls), len(pauses)) == (5, 4)


def test_the_settings_of_flowers_command_are_whole_whenever_they_are_read(tmp_path: Path) -> None:
    control.connect(tmp_path, "127.0.0.1:1", insecure=True)
    control.connect(tmp_path, "127.0.0.1:2", insecure=True)
    assert [path.name for path in (tmp_path / "flwr").iterdir()] == ["config.toml"]
    assert 'address = "127.0.0.1:2"' in (tmp_path / "flwr" / "config.toml").read_text()
