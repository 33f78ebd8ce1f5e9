"""Controls a running server by Flower's own command: registers clients, submits a run, watches it, stops it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedwca.core.files import write_text_atomically
from fedwca.deploy.flower.addresses import parse_address
from fedwca.deploy.flower.check_keys import check_public_key
from fedwca.deploy.flower.processes import ELSEWHERE, find_flwr, flower_environment, toml_string
from fedwca.errors import FedwcaError, UsageError

SELDOM, SOON = 30.0, 3.0
"""Seconds between two queries of a run's status, and after a failed query. Each query takes seconds of CPU time, which
clients on the same machine would lack."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences with which Flower's command colours its messages."""
UNREACHABLE, FORGOTTEN = "Connection to the SuperLink is unavailable", "Run ID not found"
"""What Flower's command says if no server answers, and if the server does not know a run."""
REGISTERED = "registered-keys"
"""File in the server's folder with the public keys that the running server knows, one a line."""
MISSES = 5
"""Failed status queries in a row after which watching is given up; ten minutes if each times out."""


def write_connection(folder: Path, address: str, insecure: bool) -> dict[str, str]:
    """Write the server's address into the configuration of Flower's command; return the environment to call it in.

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
    return env


def call_flwr(arguments: list[str], env: dict[str, str], timeout: float = 120) -> dict[str, Any]:
    """Run one of Flower's commands and return its JSON answer.

    Raises:
        FedwcaError: the command failed, or did not answer within ``timeout`` seconds; gives its message.
    """
    command = [str(find_flwr()), *arguments, "--format", "json"]
    try:
        result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise FedwcaError(f"flwr {arguments[0]} did not answer in {timeout:.0f} s; is the server running?") from None
    try:
        answer: dict[str, Any] = json.loads(result.stdout[result.stdout.index("{") :])
    except ValueError:
        answer = {}
    if result.returncode or not answer.get("success"):
        reason = COLOURS.sub("", answer.get("error-message") or (result.stderr or result.stdout).strip()[-500:])
        if UNREACHABLE in reason:  # Flower's advice is about a file that the user does not know
            raise FedwcaError(
                "no server of this deployment answers; is it running, at the address of --server, with the same "
                "--insecure?"
            )
        raise FedwcaError(f"flwr {' '.join(arguments[:2])} failed: {reason}")
    return answer


def forget_registered(folder: Path) -> None:
    """Forget which keys a server of this deployment has registered, since the next one knows none."""
    (folder / "server" / REGISTERED).unlink(missing_ok=True)


def register_clients(folder: Path, env: dict[str, str], tell: Callable[[str], None]) -> int:
    """Register the clients whose public keys are in ``server/keys``; return how many are new.

    A key that cannot be registered is skipped. Those that were registered since `forget_registered` are left alone, as
    each takes Flower's command two seconds.

    Args:
        folder: the deployment's.
        env: the environment to call Flower's command in.
        tell: called with a warning for each key that is skipped.
    """
    record = folder / "server" / REGISTERED
    known = set(record.read_text(encoding="utf-8").splitlines()) if record.exists() else set()
    registered = 0
    for file in sorted((folder / "server" / "keys").glob("[!.]*.pub")):
        key = ""
        try:
            check_public_key(file)
            key = b" ".join(file.read_bytes().split()[:2]).decode("ascii")  # a comment, in any encoding, may follow
            if key in known:
                continue
            known.add(key)
            call_flwr(["supernode", "register", str(file), "fedwca"], env)
            registered += 1
        except FedwcaError as error:
            reason = str(error).replace(str(file), "")  # its folder may be called so
            if "already" not in reason and "in use" not in reason:
                tell(f"Warning: a client is not let in: {error}")
                known.discard(key)
    write_text_atomically(record, "".join(f"{key}\n" for key in sorted(known)))
    return registered


def check_answers(env: dict[str, str]) -> None:
    """Check that the server answers a query.

    Raises:
        FedwcaError: the server does not answer, or has another certificate.
    """
    call_flwr(["list", "fedwca"], env, 60)


def retry(ask: Callable[[], None], tell: Callable[[str], None] = lambda sentence: None, tries: int = 20) -> None:
    """Query a server that may just have been started, until it answers.

    Args:
        ask: the query, which raises FedwcaError if there is no answer; it takes seconds, and a pause follows.
        tell: called once, after the first failure.
        tries: how often; the default is about a minute, and longer on a busy machine.

    Raises:
        FedwcaError: that of the last try; or the server refuses requests from other machines than its own.
    """
    for tries_left in reversed(range(1, tries)):
        try:
            ask()
            return
        except FedwcaError as error:
            if ELSEWHERE in str(error):
                raise
            if tries_left == tries - 1:
                tell("The server does not answer yet; trying again")
            time.sleep(2)
    ask()


def submit_run(folder: Path, env: dict[str, str]) -> str:
    """Start a run and return its number."""
    return str(call_flwr(["run", str(folder / "app"), "fedwca"], env)["run-id"])


def stop_runs(env: dict[str, str]) -> list[str]:
    """Stop all runs of a server that have not ended and return their numbers.

    Raises:
        FedwcaError: the server does not answer, or refuses requests from this machine.
    """
    stopped = []
    for number in _list_going(env):
        try:
            call_flwr(["stop", number, "fedwca"], env)
            stopped.append(number)
        except FedwcaError:
            if number in _list_going(env):  # else it has ended by itself
                raise
    return stopped


def _list_going(env: dict[str, str]) -> list[str]:
    """Return the numbers of the runs that have not ended."""
    rows = call_flwr(["list", "fedwca"], env)["runs"]
    return [str(row["run-id"]) for row in rows if not str(row["status"]).startswith("finished")]


def watch_run(
    run: str,
    env: dict[str, str],
    timeout: float,
    wait: Callable[[float], None] | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> tuple[str, int, int]:
    """Wait for a run to end; return ``completed``, ``failed`` or ``stopped``, and bytes the server received and sent.

    A status query that fails is repeated: the run itself goes on, and may have taken hours already.

    Args:
        run: its number.
        env: the environment to call Flower's command in.
        timeout: seconds after which watching is given up.
        wait: called with the seconds to wait between queries, and may return earlier; None: `time.sleep`.
        ended: whether the run is known to have ended; a query that fails is then not repeated.

    Raises:
        FedwcaError: the run has not ended in ``timeout`` seconds, the server was started anew, or `MISSES` queries in a
            row failed.
    """
    until, missed = time.monotonic() + timeout, 0
    while time.monotonic() < until:
        try:
            (row,) = call_flwr(["list", "--run-id", run, "fedwca"], env)["runs"]
        except FedwcaError as error:
            if FORGOTTEN in str(error):
                raise FedwcaError(
                    f"the server was started anew during run {run}; another run goes on after the last finished round"
                ) from None
            missed += 1
            if ended():
                raise FedwcaError(
                    f"run {run} has ended, and its server does not answer; start the server again, and another run "
                    "goes on after the last finished round"
                ) from None
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
