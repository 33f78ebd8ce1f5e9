"""Controls a running server: registers clients, submits a run, watches it, stops it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedwca.core.files import write_text_atomically
from fedwca.deploy.flower.check_keys import check_public_key
from fedwca.deploy.flower.flwr_cli import FlwrCli
from fedwca.deploy.flower.processes import ELSEWHERE
from fedwca.errors import FedwcaError

QUERY_INTERVAL = 10.0
"""Seconds between two queries of a run's status."""
FORGOTTEN = "Run ID not found"
"""What Flower's command says if the server does not know a run."""
REGISTERED = "registered-keys"
"""File in the server's folder with the public keys that the running server knows, one a line."""
MISSES = 5
"""Failed status queries in a row after which watching is given up; ten minutes if each times out."""


def forget_registered(folder: Path) -> None:
    """Forget which keys a server of this deployment has registered, since the next one knows none."""
    (folder / "server" / REGISTERED).unlink(missing_ok=True)


def register_clients(folder: Path, flwr: FlwrCli, tell: Callable[[str], None]) -> int:
    """Register the clients whose public keys are in ``server/keys``; return how many are new.

    A key that cannot be registered is skipped. Those that were registered since `forget_registered` are left alone.

    Args:
        folder: the deployment's.
        flwr: Flower's command for the server.
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
            flwr.call(["supernode", "register", str(file), "fedwca"])
            registered += 1
        except FedwcaError as error:
            reason = str(error).replace(str(file), "")  # its folder may be called so
            if "already" not in reason and "in use" not in reason:
                tell(f"Warning: a client is not let in: {error}")
                known.discard(key)
    write_text_atomically(record, "".join(f"{key}\n" for key in sorted(known)))
    return registered


def check_answers(flwr: FlwrCli) -> None:
    """Check that the server answers a query.

    Raises:
        FedwcaError: the server does not answer, or has another certificate.
    """
    flwr.call(["list", "fedwca"], 60)


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


def submit_run(folder: Path, flwr: FlwrCli) -> str:
    """Start a run and return its number."""
    return str(flwr.call(["run", str(folder / "app"), "fedwca"])["run-id"])


def stop_runs(flwr: FlwrCli) -> list[str]:
    """Stop all runs of a server that have not ended and return their numbers.

    Raises:
        FedwcaError: the server does not answer, or refuses requests from this machine.
    """
    stopped = []
    for number in _list_going(flwr):
        try:
            flwr.call(["stop", number, "fedwca"])
            stopped.append(number)
        except FedwcaError:
            if number in _list_going(flwr):  # else it has ended by itself
                raise
    return stopped


def _list_going(flwr: FlwrCli) -> list[str]:
    """Return the numbers of the runs that have not ended."""
    rows = flwr.call(["list", "fedwca"])["runs"]
    return [str(row["run-id"]) for row in rows if not str(row["status"]).startswith("finished")]


def watch_run(
    run: str,
    flwr: FlwrCli,
    timeout: float,
    wait: Callable[[float], None] | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> tuple[str, int, int]:
    """Wait for a run to end; return ``completed``, ``failed`` or ``stopped``, and bytes the server received and sent.

    A status query that fails is repeated: the run itself goes on, and may have taken hours already.

    Args:
        run: its number.
        flwr: Flower's command for the server.
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
            (row,) = flwr.call(["list", "--run-id", run, "fedwca"])["runs"]
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
        (wait or time.sleep)(QUERY_INTERVAL)
    raise FedwcaError(f"run {run} has not ended after {timeout:.0f} s")
