"""Talking to a running server with Flower's own command: letting clients in, submitting a run, watching it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedwca.core.files import write_text_atomically
from fedwca.deploy.flower.check_keys import check_public_key
from fedwca.deploy.flower.processes import ELSEWHERE, find_flwr, flower_environment, parse_address, toml_string
from fedwca.errors import FedwcaError, UsageError

SELDOM, SOON = 30.0, 3.0
"""Seconds between two questions how a run stands, and after one without an answer: each question takes seconds of a
core, which clients on the same machine would lack."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What Flower's command colours its messages with."""
MISSES = 5
"""Questions in a row, how a run stands, that may go unanswered before it is given up; ten minutes where each stalls."""


def write_connection(folder: Path, address: str, insecure: bool) -> dict[str, str]:
    """Tell Flower's command where the server is; returns the environment to call it in.

    Raises:
        UsageError: that is no address, or the deployment has no certificates.
    """
    parse_address(address)
    file = folder / "server" / "certs" / "ca.crt"
    if not insecure and not file.exists():
        raise UsageError(f"{file.parent} holds no certificates; make them by fedwca deploy init, or say --insecure")
    home = folder / "flwr"
    found = flower_environment(home)
    certificate = toml_string(str(file.resolve()))
    how = "insecure = true" if insecure else f"root-certificates = {certificate}"
    text = f'[superlink]\ndefault = "fedwca"\n\n[superlink.fedwca]\naddress = {toml_string(address)}\n{how}\n'
    # The server and a run that is submitted both write it, perhaps while the other's command reads it.
    write_text_atomically(home / "config.toml", text)
    return found


def call_flwr(arguments: list[str], env: dict[str, str], timeout: float = 120) -> dict[str, Any]:
    """What one of Flower's commands answers as JSON.

    Raises:
        FedwcaError: it failed; says how.
    """
    command = [find_flwr(), *arguments, "--format", "json"]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise FedwcaError(f"flwr {arguments[0]} did not answer in {timeout:.0f} s; is the server running?") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        answer = {}
    if done.returncode or not answer.get("success"):
        why = COLOURS.sub("", answer.get("error-message") or (done.stderr or done.stdout).strip()[-500:])
        raise FedwcaError(f"flwr {' '.join(arguments[:2])} failed: {why}")
    return answer


def register_clients(folder: Path, env: dict[str, str], tell: Callable[[str], None]) -> int:
    """Let the clients in whose public keys lie in ``server/keys``; returns how many are new.

    One that cannot be let in keeps nobody else out.

    Args:
        folder: of the deployment.
        env: the environment to call Flower's command in.
        tell: told which key is left out, and why.
    """
    new = 0
    for key in sorted((folder / "server" / "keys").glob("[!.]*.pub")):
        try:
            check_public_key(key)
            call_flwr(["supernode", "register", str(key), "fedwca"], env)
            new += 1
        except FedwcaError as error:
            if "already" not in str(error) and "in use" not in str(error):
                tell(f"Warning: a client is not let in: {error}")
    return new


def check_answers(env: dict[str, str]) -> None:
    """Ask the server for anything at all.

    Raises:
        FedwcaError: it does not answer, or has another certificate.
    """
    call_flwr(["list", "fedwca"], env, 60)


def retry(ask: Callable[[], None], tell: Callable[[str], None] = lambda sentence: None, tries: int = 20) -> None:
    """Ask a server that may have been started a moment ago, until it answers.

    Args:
        ask: what is asked; it takes Flower's command some seconds, and a pause follows.
        tell: told once that there is something to wait for.
        tries: how often; a minute or so, and longer on a machine that is busy.

    Raises:
        FedwcaError: it never answered, that of the last try; or it answers its own machine alone.
    """
    for left in reversed(range(1, tries)):
        try:
            ask()
            return
        except FedwcaError as error:
            if ELSEWHERE in str(error):
                raise
            if left == tries - 1:
                tell("The server does not answer yet; trying again")
            time.sleep(2)
    ask()


def submit_run(folder: Path, env: dict[str, str]) -> str:
    """Start a run; returns its number."""
    return str(call_flwr(["run", str(folder / "app"), "fedwca"], env)["run-id"])


def stop_runs(env: dict[str, str]) -> list[str]:
    """End all runs of a server that have not ended; returns their numbers.

    Raises:
        FedwcaError: the server does not answer, or not to this machine.
    """
    stopped = []
    for number in _list_going(env):
        try:
            call_flwr(["stop", number, "fedwca"], env)
            stopped.append(number)
        except FedwcaError:
            if number in _list_going(env):  # it has not ended by itself
                raise
    return stopped


def _list_going(env: dict[str, str]) -> list[str]:
    """Numbers of the runs that have not ended."""
    rows = call_flwr(["list", "fedwca"], env)["runs"]
    return [str(row["run-id"]) for row in rows if not str(row["status"]).startswith("finished")]


def watch_run(
    run: str,
    env: dict[str, str],
    timeout: float,
    wait: Callable[[float], None] | None = None,
) -> tuple[str, int, int]:
    """Wait for a run to end; returns ``completed``, ``failed`` or ``stopped``, and bytes into and out of the server.

    A question that stalls or fails is asked again: the run goes on without it, and may have hours behind it.

    Args:
        run: its number.
        env: the environment to call Flower's command in.
        timeout: seconds after which it is given up.
        wait: lets so many seconds go by, or less where there is something new; None: nothing is done in them.

    Raises:
        FedwcaError: it has not ended in ``timeout`` seconds, or `MISSES` questions in a row were not answered.
    """
    until, missed = time.monotonic() + timeout, 0
    while time.monotonic() < until:
        try:
            (row,) = call_flwr(["list", "--run-id", run, "fedwca"], env)["runs"]
        except FedwcaError as error:
            missed += 1
            if missed == MISSES:
                raise FedwcaError(
                    f"run {run} may still go on, but the server was asked {MISSES} times how it stands "
                    f"and did not say: {error}"
                ) from None
        else:
            missed = 0
            status, _, detail = str(row["status"]).partition(":")
            if status == "finished":
                traffic = row["network-traffic"]
                return detail, int(traffic["inbound-bytes"]), int(traffic["outbound-bytes"])
        (wait or time.sleep)(SOON if missed else SELDOM)
    raise FedwcaError(f"run {run} has not ended after {timeout:.0f} s")
