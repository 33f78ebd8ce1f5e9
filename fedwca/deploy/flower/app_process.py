"""The process that a client's app is forked from for each message, so that torch is imported once.

Flower starts a program for each message: nothing of one message is left for the next, and one that crashes takes nobody
with it. Both stay so. What is forked has read nothing yet but libraries.
"""

from __future__ import annotations

import ctypes
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

IDLE = 600.0
"""Seconds without a message after which the process ends, for there may be none for days."""
DIES_WITH_PARENT = 1
"""Linux' ``PR_SET_PDEATHSIG``."""
LIBRARIES = "fedwca.deploy.flower.client_app"
"""What is imported before a fork, with all that it imports."""
Task = Callable[[], None]


def serve_tasks(wake: int, take: Callable[[], Task | None], idle: float = IDLE) -> None:
    """Carry out each task in a fork of this process, until there can be none, or there was none for long.

    Args:
        wake: end of a pipe; a byte says that there may be a task, and its end that whoever had some is gone.
        take: the next task; None: there is none.
        idle: seconds.
    """
    forks: set[int] = set()
    try:
        while True:
            told = select.select([wake], [], [], idle)[0]
            forks -= {pid for pid in forks if os.waitpid(pid, os.WNOHANG)[0]}
            if not told and not forks:
                return
            if told and not os.read(wake, 4096):
                return
            while told and (task := take()) is not None:
                forks.add(fork(task))
    finally:
        for pid in forks:
            os.kill(pid, signal.SIGKILL)  # see `follow`


def fork(task: Task) -> int:
    """Begin a task in a process of its own; returns its number."""
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


def follow(parent: int, number: int) -> None:
    """Have this process signalled as soon as its parent ends, or the parent's thread that forked it.

    On SIGINT or SIGTERM an app tells Flower that it ends, and the message is never answered. For an app that is killed
    Flower answers within a minute.
    """
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, ctypes.c_ulong(number))
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def serve_supernode() -> None:
    """Serve the SuperNode whose address, and whose secret's file, are given; standard input is the pipe."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    address, secret = sys.argv[1:]
    sign = SuperExecAuthHttpInterceptor(
        master_secret=Path(secret).read_bytes(), protected_methods=["/flwr.proto.Runtime/AcquireTask"]
    )
    asked = [RuntimeVersionHttpInterceptor(component_name="SuperExec"), sign]
    client = RuntimeHttpClient.from_server_address(address, True, None, asked)

    def take() -> Task | None:
        try:
            found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        except Exception as error:
            # The next byte, half a second later at most while a message waits, asks again.
            logging.getLogger("fedwca.deploy").warning("the SuperNode did not say what there is to do: %s", error)
            return None
        if not found.token:
            return None
        return partial(run_clientapp, address, found.token, True)  # without Flower's own watch, which sends SIGINT

    # Before a task is taken, whose time then runs. What cannot be imported fails in a fork too, and Flower says so.
    with suppress(Exception):
        importlib.import_module(LIBRARIES)
    # The collector does not look at it again, so that forks share its pages.
    gc.freeze()
    with suppress(KeyboardInterrupt):
        serve_tasks(sys.stdin.fileno(), take)


if __name__ == "__main__":
    serve_supernode()
