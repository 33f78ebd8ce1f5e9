"""Flower's long-lived programs as child processes: what they are started with, and how they are kept running.

Nothing here imports torch: a process that only waits beside another should not hold its memory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from fedwca.deploy.flower.app_process import follow
from fedwca.deploy.flower.check_keys import check_certificate, check_private_key
from fedwca.errors import FedwcaError, UsageError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing is sent to Flower's or Ray's makers, and nothing is installed at run time, unless a user sets these."""
PAUSE, STEADY = 5.0, 300.0
"""Seconds between two starts of a client; seconds after which one counts as having run."""
ANSWER = 30
"""Seconds for which a started client asks a server that does not answer, before its start counts as failed. Flower
ends at the first attempt that fails later than that, after one to two minutes where connections are taken and nothing
more: below `STEADY`. Without it, it would ask for ever."""


ELSEWHERE = "the server takes runs and orders from its own machine alone; submit runs there"
"""What a server answers to whoever asks for more than a client does, and comes from another machine."""


def find_flwr() -> str:
    """Path of Flower's command line, beside this Python.

    Raises:
        UsageError: Flower is not installed.
    """
    path = Path(sys.executable).parent / "flwr"
    if not path.exists():
        raise UsageError(f"flwr is not installed beside {sys.executable}; pip install 'fedwca[flower]'")
    return str(path)


def flower_environment(home: Path) -> dict[str, str]:
    """A child's environment: Flower's files in ``home``; nothing is sent to its makers unless the user's says so."""
    home.mkdir(parents=True, exist_ok=True)
    # Flower starts further processes by name: its programs must be found first.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**QUIET, **os.environ, "FLWR_HOME": str(home.resolve()), "PATH": path}


def server_command(server: Path, host: str, port: int, insecure: bool) -> list[str]:
    """The long-lived server process (SuperLink); TLS and node authentication unless ``insecure``.

    Its own launcher keeps submitting runs to this machine; ``flower-superlink`` would take them from everyone.
    """
    certs = server / "certs"
    if not insecure and not (certs / "server.pem").exists():
        raise UsageError(f"{certs} holds no certificates; make them by fedwca deploy init, or say --insecure")
    if not insecure:
        check_certificate(certs / "server.pem")
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
    """The long-lived client process (SuperNode)."""
    for needed in () if insecure else ("ca.crt", "key"):
        if not (client / needed).exists():
            how = "get it from the server's certs/" if needed == "ca.crt" else "make one by fedwca deploy key"
            raise UsageError(f"{client} holds no {needed}; {how}")
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
        # Flower cuts a string at the first one, escaped or not.
        raise UsageError(f"{value} has a double quote, which Flower cannot be told; rename the file or folder")
    return toml_string(value) if isinstance(value, str) else json.dumps(value)


def toml_string(text: str) -> str:
    """A string as TOML writes it: JSON's escapes, except that what is beyond them stands for itself.

    Raises:
        UsageError: it is no Unicode, as a path may be whose bytes are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!a} is not UTF-8; rename the file or folder") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def free_port() -> int:
    """A port of this machine that nobody listens on, for a client's local interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_until_stopped(
    command: list[str],
    env: dict[str, str],
    started: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> int:
    """Run a program until it ends or Ctrl-C; it is never left behind, on Linux not even by a process that is killed.

    Returns its exit code.

    Args:
        command: what to run.
        env: its environment.
        started: called with it once it runs.
    """
    ends_with = partial(follow, os.getpid(), signal.SIGTERM) if sys.platform == "linux" else None
    process = subprocess.Popen(command, env=env, preexec_fn=ends_with)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        started(process)
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def local_address(host: str, port: int) -> str:
    """HOST:PORT at which this machine reaches its own server, which may listen on all addresses.

    >>> local_address("0.0.0.0", 8000), local_address("::", 8000), local_address("fe80::1", 8000)
    ('127.0.0.1:8000', '[::1]:8000', '[fe80::1]:8000')
    """
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{here}]:{port}" if ":" in here else f"{here}:{port}"


def parse_address(server: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        UsageError: it is not of that form.
    """
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535 or "/" in host:
        raise UsageError(f"--server {server}: not of the form HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]"), int(port)


def check_reachable(server: str) -> None:
    """See that somebody listens where a server should be; Flower's own program would ask for ever.

    Raises:
        UsageError: the address is none.
        FedwcaError: nobody listens there.
    """
    try:
        socket.create_connection(parse_address(server), timeout=10).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise FedwcaError(f"--server {server}: no server can be reached there ({error})") from None


def run_with_restarts(
    command: list[str],
    env: dict[str, str],
    tries: int,
    tell: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> NoReturn:
    """As `run_until_stopped`, started again whenever it ends by itself, until Ctrl-C.

    A client may come before its server, or before its key is known; and Flower ends without a word, with code 0, where
    a server that was started anew does not know its key yet, or the clocks of both differ.

    Args:
        command: what to run.
        env: its environment.
        tries: failures in a row after which it is given up.
        tell: told why there is a pause.
        check: raises what speaks against a start; that counts as one that failed.

    Raises:
        FedwcaError: the last try failed as well.
    """
    failures = 0
    while True:
        started, why = time.monotonic(), None
        try:
            check()
            run_until_stopped(command, env)
        except UsageError:
            raise
        except FedwcaError as error:
            why = error
        failures = failures + 1 if time.monotonic() - started < STEADY else 1
        reason = why or "the server does not let this client in, or is not there, or its clock differs by seconds"
        if failures >= tries:
            raise FedwcaError(f"{reason}; given up after {tries} {'try' if tries == 1 else 'tries'}")
        said = str(reason)
        tell(f"{said[:1].upper()}{said[1:]}; trying again in {PAUSE:.0f} s")
        time.sleep(PAUSE)
