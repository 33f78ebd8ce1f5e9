"""A client's real SuperNode, app process and apps: numbers as in one process, and what becomes of a killed process."""

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

from fedwca.deploy.flower.processes import flower_environment
from fedwca.deploy.in_process import run_in_process

pytest.importorskip("flwr")

from .lone_supernode import ROUNDS, toy

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Flower starts a program for each message"),
    pytest.mark.filterwarnings("default"),  # of Flower
]
ROOT = Path(__file__).resolve().parents[2]


def play(folder: Path, *how: str) -> list[dict[str, Any]]:
    line = [sys.executable, "-m", "tests.deploy.lone_supernode", str(folder), *how]
    env = flower_environment(folder / "home")
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert (folder / "report.json").exists(), done.stdout[-3000:] + done.stderr[-3000:]
    told: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())
    return told


@pytest.mark.parametrize("how", ["", "kill"])
@pytest.mark.timeout(900)
def test_messages_are_answered_by_one_process_and_what_is_killed_comes_back(tmp_path: Path, how: str) -> None:
    told = play(tmp_path, how)
    # A question, the rounds, the delivery.
    assert len(told) == 1 + ROUNDS + 1
    before, after = {told[0]["apps"][0], told[1]["apps"][0]}, {one["apps"][0] for one in told[2:]}
    assert len(before) == len(after) == 1
    assert (before == after) == (how != "kill")
    # None of them outlives its SuperNode for long.
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in before | after):
        assert time.monotonic() < until
        time.sleep(0.1)
    built = toy()
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, ROUNDS)
    assert torch.equal(load_file(str(tmp_path / "rows.safetensors"))["rows"], session.state.server.rows)
    assert (tmp_path / "state" / "model.safetensors").exists()
