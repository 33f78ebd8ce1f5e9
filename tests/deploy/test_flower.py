"""Over Flower: records and back, its simulation, and real processes with TLS; in an environment that has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fedwca.deploy.protocol import Parcel
from fedwca.engine.loop import Loop
from fedwca.engine.randomness import Keys
from fedwca.errors import FedwcaError
from fedwca.experiments.bench import draw
from fedwca.experiments.compose import compose
from fedwca.experiments.config import validate
from fedwca.experiments.setup import load, source_model
from fedwca.round import Server, begin, play

from ..shades import write_shades

pytest.importorskip("flwr")

from fedwca.deploy.flower.federation import NAME, Federation
from fedwca.deploy.flower.records import from_record, to_record, weigh
from fedwca.deploy.flower.simulate import QUIET, simulate

pytestmark = pytest.mark.filterwarnings("default")  # of Flower and Ray
SIZE = ["--deal", "2", "--samples", "30", "--epochs", "1", "--lr", "0.02", "--preset", "default"]
SMALL = ["--set", "source_training.epochs=1", "--set", "model.bottleneck=8", "--deadline", "200", "--join", "200"]
PARTS = {
    "wca": ["--aggregator", "wca:ta=1,tb=1", "--clusterer", "kmeans", "--rounds", "3"],
    "fedavg": ["--baseline", "fedavg", "--rounds", "2"],
    "one_hot": ["--aggregator", "one_hot", "--clusterer", "kmeans", "--rounds", "2"],
    "revised_wca": ["--aggregator", "revised_wca:u=2,ta=1,tb=1", "--clusterer", "kmeans", "--rounds", "4"],
}


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fedwca", *arguments]


def call(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program(*arguments), capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="module")
def shades(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shades(tmp_path_factory.mktemp("data") / "shades")


def laid_out(folder: Path, shades: Path, name: str, *more: str) -> Federation:
    arguments = ["--data", str(shades), *SIZE, *SMALL, *PARTS[name], "--rule", "alone=warn", *more]
    done = call("deploy", "init", str(folder), *arguments)
    assert done.returncode == 0, done.stderr
    return Federation.read(folder / "server" / NAME)


def expected(federation: Federation) -> Server:
    """What `fedwca bench --engine loop` ends with."""
    config = validate(federation.config)
    dataset, source = load(config)
    dealt = draw(config, dataset, source, 0, 0)
    loop = Loop(source_model(config, dataset, source, 0).network, dealt.clients, "cpu", 1)
    server, method = begin(loop), compose(config)[-1][0]
    for number in range(config.rounds):
        server, _ = play(
            number, server, method, loop, config.training, Keys(config.seed), dealt.metrics.domain_labels()
        )
    return server


def test_a_parcel_survives_the_wire() -> None:
    parcel = Parcel(
        "upload", 3, {"model": {"w": torch.randn(2, 3).half()}}, {"beta": torch.tensor([0.5, 0.5])}, {"n": 1}
    )
    content = to_record(parcel)
    again = from_record(content)
    assert (again.kind, again.round, dict(again.notes)) == ("upload", 3, {"n": 1})
    assert torch.equal(again.models["model"]["w"], parcel.models["model"]["w"])
    assert torch.equal(again.report["beta"], parcel.report["beta"])
    assert weigh(content) == parcel.bytes + 2 * 128  # numpy's header of each array
    with pytest.raises(FedwcaError, match="holds 276 bytes of arrays; right is at most 100"):
        from_record(content, 100)
    content.config_records["notes"].pop("fedwca.round")
    with pytest.raises(FedwcaError, match="is not of the form of a fedwca message"):
        from_record(content)


def test_nothing_is_told_to_strangers() -> None:
    assert {QUIET[name] for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED")} == {"0"}
    assert QUIET["FLWR_DISABLE_UPDATE_CHECK"] == QUIET["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.timeout(600)
def test_flowers_simulation_ends_with_the_same_models(tmp_path: Path, shades: Path, name: str) -> None:
    pytest.importorskip("ray")
    federation = laid_out(tmp_path / "d", shades, name)
    session = simulate(federation, tmp_path / "d" / "server", tmp_path / "d" / "data")
    assert torch.allclose(session.memory.server.rows, expected(federation).rows, atol=1e-5)


@contextmanager
def running(*commands: list[str], logs: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes, each in a group of its own, ended by id whatever happens."""
    started = []
    try:
        for number, command in enumerate(commands):
            with (logs / f"{number}.log").open("wb") as log:
                started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        yield started
    finally:
        for process in started:
            stop(process, signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                stop(process, signal.SIGKILL)


def stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, how)


def commands(folder: Path, clients: int, port: int, *flags: str) -> list[list[str]]:
    server = program("server", str(folder), "--port", str(port), *flags)
    data = [str(folder / "data" / f"client-{k}.npz") for k in range(clients)]
    where = ["--server", f"127.0.0.1:{port}", *flags]
    return [
        server,
        *(
            program("client", str(folder / "clients" / str(k)), "--data", data[k], "--seat", str(k), *where)
            for k in range(clients)
        ),
    ]


def submitted(folder: Path, port: int, *flags: str, timeout: float = 900) -> Any:
    """`fedwca deploy run`, tried again until the server listens."""
    until = time.monotonic() + 90
    while True:
        done = call("deploy", "run", str(folder), "--server", f"127.0.0.1:{port}", *flags, timeout=timeout)
        if "is submitted" in done.stdout or time.monotonic() > until:
            return done
        time.sleep(3)


def port() -> int:
    from fedwca.deploy.flower.processes import free_port

    return free_port()


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
@pytest.mark.timeout(1200)
def test_real_processes_end_with_the_same_models(tmp_path: Path, shades: Path, name: str) -> None:
    folder, at = tmp_path / "d", port()
    federation = laid_out(folder, shades, name)
    with running(*commands(folder, federation.rules.clients, at), logs=tmp_path):
        done = submitted(folder, at)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = load_file(str(folder / "server" / "server.safetensors"))["rows"]
    assert torch.allclose(rows, expected(federation).rows, atol=1e-5)
    assert all((folder / "clients" / str(k) / "model.safetensors").exists() for k in range(4))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_failed_run_is_a_failed_command(tmp_path: Path, shades: Path) -> None:
    folder, at = tmp_path / "d", port()
    federation = laid_out(folder, shades, "fedavg", "--insecure")
    broken = replace_rules(federation)
    (folder / "server" / NAME).write_text(broken.text())
    with running(*commands(folder, 1, at, "--insecure"), logs=tmp_path):
        done = submitted(folder, at, "--insecure")
    assert done.returncode == 1
    assert "has failed" in done.stderr
    assert "got too few answers 2 times" in (folder / "server" / "federation.log").read_text()


def replace_rules(federation: Federation) -> Federation:
    """More uploads are needed than there will be clients."""
    return federation.model_copy(update={"patience": 1, "join": 30.0, "deadline": 60.0})


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_client_and_the_server_are_killed_and_the_federation_goes_on(tmp_path: Path, shades: Path) -> None:
    folder, at = tmp_path / "d", port()
    federation = laid_out(folder, shades, "wca")
    federation = federation.model_copy(update={"deadline": 60.0, "join": 60.0})
    (folder / "server" / NAME).write_text(federation.text())
    kept = folder / "server" / "server.safetensors"
    lines = commands(folder, 4, at)
    with running(*lines, logs=tmp_path) as processes:
        run = subprocess.Popen(program("deploy", "run", str(folder), "--server", f"127.0.0.1:{at}"))
        until = time.monotonic() + 600
        while not kept.exists() and time.monotonic() < until:
            time.sleep(1)
        assert kept.exists()
        stop(processes[4], signal.SIGKILL)  # a client, in mid-round
        stop(processes[0], signal.SIGKILL)  # then the server
        run.wait(300)
    assert run.returncode != 0
    with running(*commands(folder, 3, at), logs=tmp_path):
        done = submitted(folder, at)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = load_file(str(kept))["rows"]
    assert bool(torch.isfinite(rows).all())
