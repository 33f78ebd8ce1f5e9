"""A client's real SuperNode, app process and apps give the numbers of one process; a killed app process comes back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fedwca.deploy.flower.processes import UNWRITABLE, flower_environment
from fedwca.deploy.in_process import run_in_process

pytest.importorskip("flwr")

from .lone_supernode import ROUNDS, toy

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Flower starts a program for each message"),
    pytest.mark.filterwarnings("default"),  # of Flower
]
ROOT = Path(__file__).resolve().parents[2]


def play(folder: Path, *flags: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.deploy.lone_supernode", str(folder), *flags]
    env = flower_environment(folder / "home")
    completed = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert (folder / "report.json").exists(), completed.stdout[-3000:] + completed.stderr[-3000:]
    messages: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())
    return messages


@pytest.mark.parametrize("how", ["", "kill"])
@pytest.mark.timeout(900)
def test_messages_are_answered_by_one_process_and_what_is_killed_comes_back(tmp_path: Path, how: str) -> None:
    messages = play(tmp_path, how)
    # One query, the rounds, and the final model.
    assert len(messages) == 1 + ROUNDS + 1
    early, late = (
        {messages[0]["apps"][0], messages[1]["apps"][0]},
        {message["apps"][0] for message in messages[2:]},
    )
    assert len(early) == len(late) == 1
    assert (early == late) == (how != "kill")
    # The app processes end soon after their SuperNode.
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in early | late):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    federation = toy()
    session, clients = federation.session(), federation.clients()
    run_in_process(session, clients, ROUNDS)
    assert torch.equal(load_file(str(tmp_path / "rows.safetensors"))["rows"], session.state.server.rows)
    assert (tmp_path / "state" / "model.safetensors").exists()


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    env = flower_environment(tmp_path / "flwr")
    (tmp_path / "flwr" / "app.secret").mkdir()
    command = [sys.executable, "-m", "fedwca.deploy.flower.supernode", "--port", "9"]
    completed = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == UNWRITABLE
    assert completed.stderr.startswith("Error: ")
    assert completed.stderr.count("\n") == 1
    assert str(tmp_path) in completed.stderr
