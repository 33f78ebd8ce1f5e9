"""Flower's own command in a process that stays, with a command in the place of Flower's."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedwca.deploy.flower.flwr_cli import FlwrCli
from fedwca.errors import FedwcaError

COMMAND = """
import json, os, sys, threading, time

print("imported")
calls = []


def app(arguments):
    *words, _, _ = arguments
    calls.append(words)
    if words == ["say"]:
        print("Displaying…", file=sys.stderr)
        sys.__stdout__.write(json.dumps({"success": True, "process": os.getpid(), "calls": len(calls)}))
    elif words == ["refuse"]:
        print(json.dumps({"success": False, "error-message": "\\x1b[31mno run 7\\x1b[0m"}))
    elif words == ["exit"]:
        print("a key that is none", file=sys.stderr)
        sys.exit(1)
    elif words == ["stall"]:
        time.sleep(600)
    elif words == ["end"]:
        os._exit(3)
    else:
        raise ValueError(f"{words} is no command")
    sys.exit(0)
"""


@pytest.fixture
def flwr(tmp_path: Path) -> Iterator[FlwrCli]:
    (tmp_path / "flwr_of_test.py").write_text(COMMAND, encoding="utf-8")
    installed = tmp_path / "flwr_of_test-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: flwr-of-test\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[console_scripts]\nflwr = flwr_of_test:app\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    with FlwrCli({**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}) as cli:
        yield cli


def test_one_process_answers_until_a_call_ends_it(flwr: FlwrCli) -> None:
    first = flwr.call(["say"])
    with pytest.raises(FedwcaError, match=r"^flwr refuse failed: no run 7$"):
        flwr.call(["refuse"])
    third = flwr.call(["say"])
    assert (third["process"], first["calls"], third["calls"]) == (first["process"], 1, 3)
    with pytest.raises(FedwcaError, match=r"^flwr exit failed: a key that is none$"):
        flwr.call(["exit"])
    assert flwr.call(["say"])["calls"] == 1
    with pytest.raises(FedwcaError, match=r"(?s)^flwr of which failed: .*ValueError: \['of', 'which', 'kind'\] is no"):
        flwr.call(["of", "which", "kind"])


def test_a_process_that_ends_or_stalls_is_started_again(flwr: FlwrCli) -> None:
    with pytest.raises(FedwcaError, match=r"^flwr end failed: "):
        flwr.call(["end"])
    assert flwr.call(["say"])["calls"] == 1
    started = time.monotonic()
    with pytest.raises(FedwcaError, match=r"^flwr stall did not answer in 0 s; is the server running\?$"):
        flwr.call(["stall"], 0.3)
    assert time.monotonic() - started < 100
    assert flwr.call(["say"])["calls"] == 1


def test_a_process_that_cannot_begin_says_why(flwr: FlwrCli, tmp_path: Path) -> None:
    (tmp_path / "flwr_of_test.py").write_text("import nosuch")
    with pytest.raises(FedwcaError, match=r"(?s)^flwr say failed: .*No module named 'nosuch'$"):
        flwr.call(["say"])


def test_it_is_ended_with_the_block(flwr: FlwrCli) -> None:
    process = flwr.call(["say"])["process"]
    flwr.close()
    flwr.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
