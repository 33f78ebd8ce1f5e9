"""Calls Flower's own command, ``flwr``, for one server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Timer
from typing import Any, Self

from fedwca.core.files import write_text_atomically
from fedwca.deploy.flower.addresses import parse_address
from fedwca.deploy.flower.processes import flower_environment, toml_string
from fedwca.errors import FedwcaError, UsageError

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences with which Flower's command colours its messages."""
UNREACHABLE = "Connection to the SuperLink is unavailable"
"""What Flower's command says if no server answers."""


class FlwrCli:
    """Flower's own command in a process that stays for further calls; a context manager that ends the process.

    To load the command takes two seconds of CPU time, a call some milliseconds.

    Args:
        env: the environment of the process; see `connect`.
    """

    def __init__(self, env: dict[str, str]) -> None:
        self._env = env
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, arguments: list[str], timeout: float = 120) -> dict[str, Any]:
        """Run one of Flower's commands and return its JSON answer.

        Raises:
            FedwcaError: the command failed, or did not answer within ``timeout`` seconds; gives its message.
        """
        code, out, err = self._run([*arguments, "--format", "json"], timeout)
        try:
            answer: dict[str, Any] = json.loads(out[out.index("{") :])
        except ValueError:
            answer = {}
        if code:
            self.close()
        if code or not answer.get("success"):
            reason = COLOURS.sub("", answer.get("error-message") or (err or out).strip()[-500:])
            if UNREACHABLE in reason:  # Flower's advice is about a file that the user does not know
                raise FedwcaError(
                    "no server of this deployment answers; is it running, at the address of --server, with the same "
                    "--insecure?"
                )
            raise FedwcaError(f"flwr {' '.join(arguments[:2])} failed: {reason}")
        return answer

    def close(self) -> None:
        """End the process; another call starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _run(self, arguments: list[str], timeout: float) -> tuple[int, str, str]:
        """Return the command's exit code, standard output and standard error."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        late = Event()

        def expire() -> None:
            late.set()
            process.kill()

        timer, line = Timer(timeout, expire), ""
        timer.start()
        try:
            with suppress(BrokenPipeError):  # it has ended already
                process.stdin.write(json.dumps(arguments) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            timer.cancel()
        if line:
            code, out, err = json.loads(line)
            return code, out, err
        if late.is_set():
            self.close()
            raise FedwcaError(f"flwr {arguments[0]} did not answer in {timeout:.0f} s; is the server running?")
        return 1, *process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        # Standard error is that of a process that cannot begin: later it goes to a file.
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "fedwca.deploy.flower.flwr_process"],
            env=self._env,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            encoding="utf-8",
            errors="replace",
        )


def connect(folder: Path, address: str, insecure: bool) -> FlwrCli:
    """Write the server's address into the configuration of Flower's command; return the command.

    Raises:
        UsageError: the address does not have the form HOST:PORT, or the deployment has no certificates.
    """
    parse_address(address)
    file = folder / "server" / "certs" / "ca.crt"
    if not insecure and not file.exists():
        raise UsageError(f"{file.parent} holds no certificates; make them by fedwca deploy init, or say --insecure")
    home = folder / "flwr"
    env = flower_environment(home)
    certificate = toml_string(str(file.resolve()))
    security = "insecure = true" if insecure else f"root-certificates = {certificate}"
    text = f'[superlink]\ndefault = "fedwca"\n\n[superlink.fedwca]\naddress = {toml_string(address)}\n{security}\n'
    # `fedwca server` and `fedwca deploy run` both write it, perhaps while the other's command reads it.
    write_text_atomically(home / "config.toml", text)
    return FlwrCli({**env, "PYTHONIOENCODING": "utf-8"})
