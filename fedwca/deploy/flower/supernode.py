"""Flower's SuperNode with a persistent app process and a faster polling loop; takes ``flower-supernode``'s arguments.

Nothing here imports torch. On systems other than Linux, where processes cannot be forked safely, Flower starts a new
program for each message, as it does by default.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from fedwca.core.files import write_secret
from fedwca.deploy.flower.polling import SuperNodePauses
from fedwca.deploy.flower.processes import UNWRITABLE
from fedwca.errors import describe_os_error

AGAIN = 1.0
"""Seconds between two starts of an app process."""


class AppProcess:
    """The process that carries out tasks, started when there is a task and it is not running.

    It is notified of tasks, and of the end of this process, through its standard input.

    Args:
        command: the program and its arguments.
    """

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._started = -AGAIN

    def tell(self) -> None:
        """Notify the process that there may be a task; called repeatedly while one waits."""
        if self._process is None or self._process.poll() is not None:
            if time.monotonic() - self._started < AGAIN:
                return
            self._process = subprocess.Popen(self.command, stdin=subprocess.PIPE, bufsize=0)
            self._started = time.monotonic()
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        assert self._process.stdin is not None
        # The process may just have ended, or its pipe may be full because it has not read for hours.
        with suppress(BrokenPipeError, BlockingIOError):
            self._process.stdin.write(b".")


def run_supernode() -> None:
    """Run Flower's SuperNode until it is stopped."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    if sys.platform == "linux":
        parser = argparse.ArgumentParser()
        parser.add_argument("--port", required=True)
        address = f"127.0.0.1:{parser.parse_known_args()[0].port}"
        secret = Path(os.environ["FLWR_HOME"]) / "app.secret"
        # The SuperNode gives tasks only to processes that know the secret, not to others on this machine.
        try:
            write_secret(secret, secrets.token_bytes(32))
        except OSError as error:  # such as a full disk
            sys.stderr.write(f"Error: {describe_os_error(error, str(secret))}\n")
            sys.exit(UNWRITABLE)
        sys.argv += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
        app = AppProcess([sys.executable, "-m", "fedwca.deploy.flower.app_process", address, str(secret)])
        start_client_internal.time = SuperNodePauses(app.tell)
    else:
        start_client_internal.time = SuperNodePauses(lambda: None)
    flower_supernode()


def run_supernode_and_exit() -> NoReturn:
    """Run Flower's SuperNode until it is stopped, then exit at once.

    When the server was unreachable for long, Flower leaves a thread running that never ends, and the parent that waits
    for this process in order to restart it would wait for ever.
    """
    code = 1
    try:
        run_supernode()  # returns if the server is lost; a signal raises SystemExit
    except SystemExit as exit_error:
        code = exit_error.code if isinstance(exit_error.code, int) else int(exit_error.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    run_supernode_and_exit()
