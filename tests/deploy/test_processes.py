"""One server and four clients as real processes over loopback: the engine's models, and failures of either."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedwca.core.deployment_files import CONFIG_NAME
from fedwca.deploy.flower.config import DeploymentConfig

from .processes import (
    LIES,
    PARTS,
    bent,
    commands,
    laid_out,
    message_by_message,
    port,
    program,
    require_same,
    running,
    stop,
    submitted,
)

pytest.importorskip("flwr")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # of Flower


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.timeout(1200)
def test_real_processes_end_with_the_same_models(tmp_path: Path, shades: Path, name: str) -> None:
    folder, free_port = tmp_path / "d", port()
    federation = laid_out(folder, shades, name)
    with running(*commands(folder, federation.rules.clients, free_port), logs=tmp_path):
        completed = submitted(folder, free_port)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    require_same(load_file(str(folder / "server" / "server.safetensors"))["rows"], federation, folder)
    assert all((folder / "clients" / str(k) / "model.safetensors").exists() for k in range(4))


@pytest.mark.timeout(1200)
def test_a_failed_run_is_a_failed_command(tmp_path: Path, shades: Path) -> None:
    folder, free_port = tmp_path / "d", port()
    federation = laid_out(folder, shades, "fedavg", "--insecure")
    hasty = replace_rules(federation)
    (folder / "server" / CONFIG_NAME).write_text(hasty.text())
    with running(*commands(folder, 1, free_port, "--insecure"), logs=tmp_path):
        completed = submitted(folder, free_port, "--insecure")
    assert completed.returncode == 1
    assert "has failed" in completed.stderr
    assert "got too few answers 2 times" in (folder / "server" / "federation.log").read_text()


def replace_rules(federation: DeploymentConfig) -> DeploymentConfig:
    """A deployment that gives up soon; the test starts fewer clients than a round needs."""
    return federation.model_copy(update={"repeats": 1, "wait": 30.0, "deadline": 30.0})


@pytest.mark.timeout(1800)
def test_a_client_and_the_server_are_killed_and_the_federation_goes_on(tmp_path: Path, shades: Path) -> None:
    folder, free_port = tmp_path / "d", port()
    federation = laid_out(folder, shades, "wca")
    federation = federation.model_copy(update={"deadline": 60.0, "wait": 60.0})
    (folder / "server" / CONFIG_NAME).write_text(federation.text())
    checkpoint = folder / "server" / "server.safetensors"
    command_lines = commands(folder, 4, free_port)
    with running(*command_lines, logs=tmp_path) as processes:
        run = subprocess.Popen(program("deploy", "run", str(folder), "--server", f"127.0.0.1:{free_port}"))
        deadline = time.monotonic() + 600
        while not checkpoint.exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(1)
        assert checkpoint.exists(), f"no round was played; deploy run: {run.poll()}"
        stop(processes[4], signal.SIGKILL)  # a client, in mid-round
        stop(processes[0], signal.SIGKILL)  # then the server
        run.wait(300)
    assert run.returncode != 0
    with running(*commands(folder, 3, free_port), logs=tmp_path):
        completed = submitted(folder, free_port)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    rows = load_file(str(checkpoint))["rows"]
    assert bool(torch.isfinite(rows).all())


@pytest.mark.timeout(1200)
def test_a_slow_and_a_hostile_client_cost_a_round_their_answers_alone(tmp_path: Path, shades: Path) -> None:
    folder, free_port = tmp_path / "d", port()
    deadline = 120.0
    federation = laid_out(folder, shades, "fedavg", "--rounds", "3", "--deadline", str(deadline))
    environments = {
        3: bent(tmp_path / "lies", LIES),
        4: bent(tmp_path / "sleeps", f"time.sleep({deadline + 1})"),
    }
    with running(*commands(folder, 4, free_port), logs=tmp_path, among=environments):
        completed = submitted(folder, free_port)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    log = (folder / "server" / "federation.log").read_text()
    assert re.search(r"round 1: client 2 \(\w+\) refused: .* has values that are not finite", log)
    assert "round 1: client 3 did not answer in time" in log
    assert "round 2: client" not in log
    session, _ = message_by_message(federation, folder, lambda client, p: None if client > 1 and p.round == 1 else p)
    rows = load_file(str(folder / "server" / "server.safetensors"))["rows"]
    assert torch.allclose(rows, session.state.server.rows, atol=1e-5)
