"""Flower's SuperNode, with an app process that lives on and a loop that asks sooner: ``flower-supernode``'s arguments.

Nothing here imports torch. Where processes cannot be forked safely, which is everywhere but on Linux, Flower starts a
program for each message as it does itself.
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

AGAIN = 1.0
"""Seconds between two starts of an app process."""


class AppProcess:
    """A process that is started when there is a task for it and none runs; it hears of tasks, and of this process' end,
    through its standard input.

    Args:
        command: what to run.
    """

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._started = -AGAIN

    def tell(self) -> None:
        """There may be a task; said again and again while one waits."""
        if self._process is None or self._process.poll() is not None:
            if time.monotonic() - self._started < AGAIN:
                return
            self._process = subprocess.Popen(self.command, stdin=subprocess.PIPE, bufsize=0)
            self._started = time.monotonic()
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        assert self._process.stdin is not None
        # It may just have ended, or not have read in hours.
        with suppress(BrokenPipeError, BlockingIOError):
            self._process.stdin.write(b".")


def run_supernode() -> None:
    """Run until stopped."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    if sys.platform == "linux":
        parser = argparse.ArgumentParser()
        parser.add_argument("--port", required=True)
        address = f"127.0.0.1:{parser.parse_known_args()[0].port}"
        secret = Path(os.environ["FLWR_HOME"]) / "app.secret"
        # Without it the SuperNode gives a task to nobody else on this machine.
        write_secret(secret, secrets.token_bytes(32))
        sys.argv += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
        app = AppProcess([sys.executable, "-m", "fedwca.deploy.flower.app_process", address, str(secret)])
        start_client_internal.time = SuperNodePauses(app.tell)
    else:
        start_client_internal.time = SuperNodePauses(lambda: None)
    flower_supernode()


def run_supernode_and_exit() -> NoReturn:
    """Run until stopped, and end then.

    Flower leaves a thread behind that never ends when the server was away for long; whoever waits for this process to
    start it anew would wait for ever.
    """
    code = 1
    try:
        run_supernode()  # comes back where the server is lost; who is stopped by a signal leaves by SystemExit
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
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
