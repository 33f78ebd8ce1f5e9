"""Flower's programs as child processes: what they are started with, and how a run is submitted and watched."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fedwca.deploy.flower.simulate import QUIET
from fedwca.errors import FedwcaError, UsageError

PORT = 8000


def program(name: str) -> str:
    """Path of one of Flower's programs, beside this Python.

    Raises:
        UsageError: Flower is not installed.
    """
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise UsageError(f"{name} is not installed beside {sys.executable}; pip install 'fedwca[flower]'")
    return str(path)


def environment(home: Path) -> dict[str, str]:
    """A child's environment: Flower's files in ``home``; nothing is sent to its makers unless the user's says so."""
    home.mkdir(parents=True, exist_ok=True)
    # Flower starts further processes by name: its programs must be found first.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**QUIET, **os.environ, "FLWR_HOME": str(home.resolve()), "PATH": path}


def server_command(server: Path, host: str, port: int, insecure: bool) -> list[str]:
    """The long-lived server process (SuperLink); TLS and node authentication unless ``insecure``."""
    certs = server / "certs"
    if not insecure and not (certs / "server.pem").exists():
        raise UsageError(f"{certs} holds no certificates; make them by fedwca deploy init, or say --insecure")
    secure = [
        *("--ssl-ca-certfile", str(certs / "ca.crt"), "--ssl-certfile", str(certs / "server.pem")),
        *("--ssl-keyfile", str(certs / "server.key"), "--enable-supernode-auth"),
    ]
    return [
        program("flower-superlink"),
        *(["--insecure"] if insecure else secure),
        *("--host", host, "--port", str(port), "--disable-runtime-dependency-installation"),
    ]


def client_command(client: Path, data: Path, server: str, insecure: bool, settings: dict[str, Any]) -> list[str]:
    """The long-lived client process (SuperNode)."""
    for needed in () if insecure else ("ca.crt", "key"):
        if not (client / needed).exists():
            raise UsageError(f"{client} holds no {needed}; get it from whoever made the federation, or say --insecure")
    if not data.exists():
        raise UsageError(f"--data {data} does not exist; it takes a folder of images or an .npz file")
    secure = ["--root-certificates", str(client / "ca.crt"), "--auth-supernode-private-key", str(client / "key")]
    config = {"data": str(data.resolve()), "state": str(client.resolve()), **settings}
    return [
        program("flower-supernode"),
        *(["--insecure"] if insecure else secure),
        *("--superlink", server, "--port", str(free_port())),
        *("--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())),
    ]


def free_port() -> int:
    """A port of this machine that nobody listens on, for a client's local interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connect(folder: Path, address: str, insecure: bool) -> dict[str, str]:
    """Tell Flower's command where the server is; returns the environment to call it in."""
    home = folder / "flwr"
    found = environment(home)
    certificate = json.dumps(str((folder / "server" / "certs" / "ca.crt").resolve()))
    how = "insecure = true" if insecure else f"root-certificates = {certificate}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "fedwca"\n\n[superlink.fedwca]\naddress = {json.dumps(address)}\n{how}\n'
    )
    return found


def flwr(arguments: list[str], env: dict[str, str], timeout: float = 120) -> dict[str, Any]:
    """What one of Flower's commands answers as JSON.

    Raises:
        FedwcaError: it failed; says how.
    """
    command = [program("flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise FedwcaError(f"flwr {arguments[0]} did not answer in {timeout:.0f} s; is the server running?") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        answer = {}
    if done.returncode or not answer.get("success"):
        why = answer.get("error-message") or (done.stderr or done.stdout).strip()[-500:]
        raise FedwcaError(f"flwr {' '.join(arguments[:2])} failed: {why}")
    return answer


def register(folder: Path, env: dict[str, str]) -> int:
    """Let the clients in whose public keys lie in ``server/keys``; returns how many are new."""
    new = 0
    for key in sorted((folder / "server" / "keys").glob("*.pub")):
        try:
            flwr(["supernode", "register", str(key), "fedwca"], env)
            new += 1
        except FedwcaError as error:
            if "already" not in str(error) and "in use" not in str(error):
                raise
    return new


def submit(folder: Path, env: dict[str, str]) -> str:
    """Start a run; returns its number."""
    return str(flwr(["run", str(folder / "app"), "fedwca"], env)["run-id"])


def watch(run: str, env: dict[str, str], timeout: float, poll: float = 3.0) -> str:
    """Wait for a run to end; returns ``completed``, ``failed`` or ``stopped``.

    Raises:
        FedwcaError: it has not ended in ``timeout`` seconds.
    """
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        (row,) = flwr(["list", "--run-id", run, "fedwca"], env)["runs"]
        status, _, detail = str(row["status"]).partition(":")
        if status == "finished":
            return detail
        time.sleep(poll)
    raise FedwcaError(f"run {run} has not ended after {timeout:.0f} s")
