"""Deployments in folders: writing them, running their processes, and the models that are expected of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import validate
from fedwca.core.deployment_files import CONFIG_NAME
from fedwca.deploy.client import Client
from fedwca.deploy.client_images import read_images
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.in_process import Wire, run_in_process
from fedwca.deploy.session import Session
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from fedwca.runs.load_data import load
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

SIZE = ["--deal", "2", "--samples", "30", "--epochs", "1", "--lr", "0.02", "--preset", "default"]
SMALL = ["--set", "source_training.epochs=1", "--set", "model.bottleneck=8", "--deadline", "900", "--wait", "600"]
PARTS = {
    "wca": ["--aggregator", "wca:ta=1,tb=1", "--clusterer", "kmeans", "--rounds", "3"],
    "fedavg": ["--baseline", "fedavg", "--rounds", "2"],
    "one_hot": ["--aggregator", "one_hot", "--clusterer", "kmeans", "--rounds", "2"],
    "fedtab": ["--baseline", "fedtab/pseudo_labeler=trusted:least=0.005", "--rounds", "3"],
    "revised_wca": ["--aggregator", "revised_wca:u=2,ta=1,tb=1", "--clusterer", "kmeans", "--rounds", "4"],
}
"""Options for the method and the rounds, by the name that `laid_out` takes."""


def program(*arguments: str) -> list[str]:
    """The command line that runs `fedwca` with these arguments."""
    return [sys.executable, "-m", "fedwca", *arguments]


def call(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run `fedwca` in a process of its own, to its end."""
    return subprocess.run(program(*arguments), capture_output=True, text=True, timeout=timeout, check=False)


def laid_out(folder: Path, shades: Path, name: str, *options: str) -> DeploymentConfig:
    """Write a deployment of four clients by `fedwca deploy init`, and read its configuration.

    Args:
        folder: where.
        shades: the images.
        name: a key of `PARTS`, or a baseline.
        options: further ones of the command.
    """
    arguments = [
        "--data",
        str(shades),
        *SIZE,
        *SMALL,
        *PARTS.get(name, ["--baseline", name, "--rounds", "3"]),
        "--rule",
        "alone=warn",
        *options,
    ]
    completed = call("deploy", "init", str(folder), *arguments)
    assert completed.returncode == 0, completed.stderr
    return DeploymentConfig.read(folder / "server" / CONFIG_NAME)


def expected(federation: DeploymentConfig) -> Server:
    """The server that the same run of `fedwca bench --engine loop` ends with."""
    config = validate(federation.config)
    dataset, source = load(config)
    split = split_trial(config, dataset, source, 0, 0)
    engine = SequentialEngine(source_model(config, dataset, source, 0).network, split.clients, "cpu", 1)
    server, method = init_server(engine), compose(config)[-1][0]
    for round_number in range(config.rounds):
        server, _ = run_round(
            round_number, server, method, engine, config.training, Keys(config.seed), split.metrics.domain_labels()
        )
    return server


def message_by_message(
    federation: DeploymentConfig, folder: Path, wire: Wire = lambda client, parcel: parcel
) -> tuple[Session, list[Client]]:
    """Play a deployment in one process, with the images and the source model of its folder."""
    session = federation.session(folder / "server" / "source.safetensors")
    clients = [Client(partial(read_images, folder / "data" / f"client-{k}.npz")) for k in range(4)]
    run_in_process(session, clients, federation.rounds, wire)
    return session, clients


def require_same(rows: Tensor, federation: DeploymentConfig, folder: Path) -> None:
    """Assert that ``rows`` are the models of messages in one process, and those of the engine up to rounding.

    The engine mixes the server's rows once; a client mixes the models that it was sent. So the models that clients
    start from differ by 1e-7. Where that decides a tie of max-pooling, a gradient goes to another weight; differences
    of 3e-5 have been seen.
    """
    session, clients = message_by_message(federation, folder)
    in_process = session.state.server.rows if session.method.aggregator.sends_models else stacked(clients)
    assert torch.allclose(rows, in_process, atol=1e-6)
    assert torch.allclose(rows, expected(federation).rows, atol=1e-4)


def stacked(clients: Sequence[Client]) -> Tensor:
    """The models that clients end with ``[K, P]``."""
    return torch.stack([client.final for client in clients if client.final is not None])


BENT = """
import sys


class Bending:
    def find_spec(self, name, path=None, target=None):
        if name != "fedwca.deploy.flower.client_app":
            return None
        sys.meta_path.remove(self)
        import time
        from dataclasses import replace

        from fedwca.deploy.client import Client

        def handle(self, parcel, honest=Client.handle):
            answer = honest(self, parcel)
            if parcel.kind == "train" and parcel.round == 1:
                {what}
            return answer

        Client.handle = handle
        return None


sys.meta_path.insert(0, Bending())
"""
LIES = "answer = replace(answer, models={'model': {k: v * float('nan') for k, v in answer.models['model'].items()}})"


def bent(folder: Path, statement: str) -> Mapping[str, str]:
    """Environment variables of a client that runs ``statement`` on its ``answer`` in round 1.

    A ``sitecustomize`` in ``folder`` changes the client's code, as a hostile client would change its own.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BENT.format(what=statement))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@contextmanager
def running(
    *commands: list[str], logs: Path, among: Mapping[int, Mapping[str, str]] | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes, each in a process group of its own; on leaving, end those that still run.

    Args:
        commands: their command lines.
        logs: folder for their output, in a file ``0.log`` for the first, and so on.
        among: environments by the number of the process; the others inherit this process's own.
    """
    started = []
    try:
        for number, command in enumerate(commands):
            with (logs / f"{number}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, start_new_session=True, env=(among or {}).get(number)
                    )
                )
        yield started
    finally:
        for process in started:
            stop(process, signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                stop(process, signal.SIGKILL)


def stop(process: subprocess.Popen[bytes], signal_number: signal.Signals) -> None:
    """Send a signal to the group of a process, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal_number)


def commands(folder: Path, clients: int, port: int, *flags: str) -> list[list[str]]:
    """The command lines of the server and of so many clients of a deployment."""
    server = program("server", str(folder), "--port", str(port), *flags)
    data = [str(folder / "data" / f"client-{k}.npz") for k in range(clients)]
    client_options = ["--server", f"127.0.0.1:{port}", *flags]
    return [
        server,
        *(
            program("client", str(folder / "clients" / str(k)), "--data", data[k], "--number", str(k), *client_options)
            for k in range(clients)
        ),
    ]


def submitted(folder: Path, port: int, *flags: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """Run `fedwca deploy run` to its end; it waits until the server listens."""
    return call("deploy", "run", str(folder), "--server", f"127.0.0.1:{port}", *flags, timeout=timeout)


def port() -> int:
    """A free port of this machine."""
    from fedwca.deploy.flower.addresses import free_port

    return free_port()
