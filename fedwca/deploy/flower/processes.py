"""Runs Flower's long-lived programs as child processes: their commands, their environment, and their restarts.

Nothing here imports torch: a process that only waits for another should not take that much memory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from fedwca.deploy.flower.addresses import free_port, local_host
from fedwca.deploy.flower.check_keys import (
    RENEWAL,
    check_certificate,
    check_certificate_key,
    check_certified_address,
    check_private_key,
)
from fedwca.deploy.flower.follow_parent import follow
from fedwca.errors import FedwcaError, UsageError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Defaults of environment variables: no telemetry to Flower or Ray, no update checks, no installation at run time."""
PAUSE, STEADY = 5.0, 300.0
"""Seconds between two starts of a client; seconds after which a start counts as successful."""
ANSWER = 30
"""Seconds for which a started client retries a server that does not answer. Flower exits at the first attempt that
fails after them: if connections are accepted but not answered, after one to two minutes, which is below `STEADY`.
Without this limit it would retry for ever."""

UNWRITABLE = 74
"""Exit code of a client's program that cannot write into the client's folder; it has printed why."""

ELSEWHERE = "the server takes runs and orders from its own machine alone; submit runs there"
"""The server's answer to requests from other machines that are not a client's."""


def find_flwr() -> Path:
    """Return the path of Flower's command: beside this Python, or where else pip puts this Python's scripts.

    Raises:
        UsageError: Flower is not installed.
    """
    folders = [str(Path(sys.executable).parent), sysconfig.get_path("scripts")]  # Debian's differ
    if site.ENABLE_USER_SITE:
        folders.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    if path := shutil.which("flwr", path=os.pathsep.join(folders)):
        return Path(path)
    raise UsageError(f"flwr is not in {' or '.join(dict.fromkeys(folders))}; pip install 'fedwca[flower]'")


def flower_environment(home: Path) -> dict[str, str]:
    """Return a child process's environment: Flower's files in ``home``, and `QUIET` unless the user's overrides it.

    Messages between processes of one machine go through no proxy.

    Raises:
        UsageError: Flower is not installed.
    """
    # Flower starts further processes by name: its programs must come first.
    path = os.pathsep.join([str(find_flwr().parent), os.environ.get("PATH", "")])
    home.mkdir(parents=True, exist_ok=True)
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if direct.strip() != "*":  # all hosts, which holds only where nothing else is named
        direct = ",".join(filter(None, [direct, "127.0.0.1", "localhost", "::1"]))
    proxies = {"NO_PROXY": direct, "no_proxy": direct}
    return {**QUIET, **os.environ, **proxies, "FLWR_HOME": str(home.resolve()), "PATH": path}


def server_command(server: Path, host: str, port: int, insecure: bool) -> list[str]:
    """Return the command of the long-lived server process (SuperLink); TLS and node keys unless ``insecure``.

    It accepts runs from this machine only; ``flower-superlink`` would accept them from any machine.

    Raises:
        UsageError: certificates are missing, or the server's is not valid.
    """
    certs = server / "certs"
    if not insecure:
        for name in ("server.pem", "server.key", "ca.crt"):
            if not (certs / name).exists():
                raise UsageError(f"{certs} holds no {name}; copy it back, or say --insecure; {RENEWAL}")
        check_certificate(certs / "server.pem")
        check_certificate_key(certs / "server.key", certs / "server.pem")
        check_certified_address(certs / "server.pem", local_host(host))
    secure = [
        *("--ssl-ca-certfile", str(certs / "ca.crt"), "--ssl-certfile", str(certs / "server.pem")),
        *("--ssl-keyfile", str(certs / "server.key"), "--enable-supernode-auth"),
    ]
    return [
        *(sys.executable, "-m", "fedwca.deploy.flower.superlink"),
        *(["--insecure"] if insecure else secure),
        *("--host", host, "--port", str(port)),
    ]


def client_command(client: Path, data: Path, server: str, insecure: bool, settings: dict[str, Any]) -> list[str]:
    """Return the command of the long-lived client process (SuperNode).

    Args:
        client: the client's folder.
        data: its images.
        server: the server's address.
        insecure: no TLS and no node key.
        settings: further values of the node's configuration.

    Raises:
        UsageError: a file is missing or not valid, or a path cannot be passed to Flower.
    """
    for file in () if insecure else ("ca.crt", "key"):
        if not (client / file).exists():
            hint = "get it from the server's certs/" if file == "ca.crt" else "make one by fedwca deploy key"
            raise UsageError(f"{client} holds no {file}; {hint}")
    if not insecure:
        check_certificate(client / "ca.crt")
        check_private_key(client / "key")
    if not data.exists():
        raise UsageError(f"--data {data} does not exist; it takes a folder of images or an .npz file")
    secure = ["--root-certificates", str(client / "ca.crt"), "--auth-supernode-private-key", str(client / "key")]
    config = {"data": str(data.resolve()), "state": str(client.resolve()), **settings}
    return [
        *(sys.executable, "-m", "fedwca.deploy.flower.supernode"),
        *(["--insecure"] if insecure else secure),
        *("--superlink", server, "--max-wait-time", str(ANSWER), "--port", str(free_port())),
        *("--node-config", " ".join(f"{key}={_setting(value)}" for key, value in config.items())),
    ]


def _setting(value: Any) -> str:
    if isinstance(value, str) and '"' in value:
        # Flower cuts a string at the first double quote, escaped or not.
        raise UsageError(f"{value} has a double quote, which Flower cannot be told; rename the file or folder")
    return toml_string(value) if isinstance(value, str) else json.dumps(value)


def toml_string(text: str) -> str:
    """Return a string as a TOML literal: with JSON's escapes, but non-ASCII characters unescaped.

    Raises:
        UsageError: it cannot be encoded as UTF-8, as a path whose bytes are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!a} is not UTF-8; rename the file or folder") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def run_until_stopped(
    command: list[str],
    env: dict[str, str],
    started: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> int:
    """Run a program until it ends, or until Ctrl-C, and return its exit code.

    The program is always ended with this process, on Linux even if this process is killed.

    Args:
        command: the program and its arguments.
        env: its environment.
        started: called with the process once it has started.
    """
    follow_parent = partial(follow, os.getpid(), signal.SIGTERM) if sys.platform == "linux" else None
    process = subprocess.Popen(command, env=env, preexec_fn=follow_parent)
    try:
        started(process)
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def run_with_restarts(
    command: list[str],
    env: dict[str, str],
    tries: int,
    tell: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Run a program as `run_until_stopped` does, and restart it whenever it ends, until Ctrl-C.

    A client may start before its server, or before its key is known there. Flower then exits silently with code 0 if a
    restarted server does not know the key yet, or if the clocks differ.

    Args:
        command: the program and its arguments.
        env: its environment.
        tries: failures in a row after which this gives up.
        tell: called with the reason before each pause.
        check: called before each start; a `FedwcaError` that it raises counts as a failed start, a `UsageError` ends
            the restarts.

    Raises:
        UsageError: ``check`` raised it.
        FedwcaError: there were ``tries`` failures in a row.
    """
    failures = 0
    while True:
        started, cause = time.monotonic(), None
        try:
            check()
            if run_until_stopped(command, env) == UNWRITABLE:
                cause = FedwcaError("this client's folder cannot be written, as the line above says")
        except UsageError:
            raise
        except FedwcaError as error:
            cause = error
        failures = failures + 1 if time.monotonic() - started < STEADY else 1
        reason = (
            cause
            or "the server is not there, not ca.crt's, does not let this client in, or its clock differs by seconds"
        )
        if failures >= tries:
            raise FedwcaError(f"{reason}; given up after {tries} {'try' if tries == 1 else 'tries'}")
        message = str(reason)
        tell(f"{message[:1].upper()}{message[1:]}; trying again in {PAUSE:.0f} s")
        time.sleep(PAUSE)
