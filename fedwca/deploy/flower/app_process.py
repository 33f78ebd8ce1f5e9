"""The process that a client's app is forked from for each message, so that torch is imported once.

By default Flower starts a program for each message, so no state is left for the next message, and a crash affects one
message only. Both hold here too: the process that is forked has only imported libraries.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from fedwca.deploy.flower.follow_parent import follow

IDLE = 600.0
"""Seconds without a message after which the process ends, since the next one may come days later."""
LIBRARIES = "fedwca.deploy.flower.client_app"
"""The module that is imported before forking, with all that it imports."""
Task = Callable[[], None]


def serve_tasks(wake: int, take: Callable[[], Task | None], idle: float = IDLE) -> None:
    """Carry out each task in a fork of this process, until the pipe is closed or no task came for ``idle`` seconds.

    Args:
        wake: read end of a pipe; a byte says that there may be a task, end of file that the SuperNode has ended.
        take: returns the next task; None: there is none.
        idle: seconds.
    """
    forks: set[int] = set()
    try:
        while True:
            readable = select.select([wake], [], [], idle)[0]
            forks -= {pid for pid in forks if os.waitpid(pid, os.WNOHANG)[0]}
            if not readable and not forks:
                return
            if readable and not os.read(wake, 4096):
                return
            while readable and (task := take()) is not None:
                forks.add(fork(task))
    finally:
        for pid in forks:
            os.kill(pid, signal.SIGKILL)  # see `follow`


def fork(task: Task) -> int:
    """Start a task in a forked process and return its process id."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    follow(parent, signal.SIGKILL)
    code = 1
    try:
        task()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def serve_supernode() -> None:
    """Serve the SuperNode at the address, and with the secret file, of the arguments; standard input is the pipe."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    address, secret = sys.argv[1:]
    sign = SuperExecAuthHttpInterceptor(
        master_secret=Path(secret).read_bytes(), protected_methods=["/flwr.proto.Runtime/AcquireTask"]
    )
    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperExec"), sign]
    client = RuntimeHttpClient.from_server_address(address, True, None, interceptors)

    def take() -> Task | None:
        try:
            response = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        except Exception as error:
            # While a message waits, the next byte comes within half a second and this is tried again.
            logging.getLogger("fedwca.deploy").warning("the SuperNode did not say what there is to do: %s", error)
            return None
        if not response.token:
            return None
        # Without ``parent_pid``: Flower's own watch of the parent would send SIGINT.
        return partial(run_clientapp, address, response.token, True)

    # Import before a task is taken, because its time then runs. If the import fails, it fails in the fork too, and
    # Flower reports it.
    with suppress(Exception):
        importlib.import_module(LIBRARIES)
    # Keep the garbage collector from touching these objects, so that forks share their pages.
    gc.freeze()
    with suppress(KeyboardInterrupt):
        serve_tasks(sys.stdin.fileno(), take)


if __name__ == "__main__":
    serve_supernode()
