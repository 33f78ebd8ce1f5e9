"""A process that has imported everything and computed nothing; it runs each command line in a fork of itself.

So a command takes the time of its work without that of its imports, but is a process of its own: what it does to its
streams, its environment or its memory ends with it.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import math
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]
LATE = ("matplotlib.figure", "matplotlib.backends.backend_agg", "optuna", "rich.console", "rich.progress")
"""What commands import when they need it, most of them do, and it takes them seconds."""


@dataclass(frozen=True)
class CommandLine:
    """A command line and the environment that it runs in."""

    words: list[str]
    folder: str
    """Working directory; stdout and stderr are files beside it."""
    environment: dict[str, str] = field(default_factory=dict)
    before: str = ""
    """Python code that is run before the command, in its process."""
    encoding: str = "utf-8"
    closed: tuple[int, ...] = ()
    """Numbers of the standard streams that are closed, from 0, 1 and 2."""
    full: bool = False
    """Whether stdout is a full device."""
    file_size: int | None = None
    """The largest size of a file in bytes, as on a disk that is nearly full."""
    files: int | None = None
    """The largest number of open files."""
    kill_after: float | None = None
    """Seconds after which its process gets the signal ``kill_by``, if it has not ended by then."""
    kill_by: int = signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit code; 128 plus the signal's number if a signal ended it."""
    seconds: float
    out: str
    err: str


class ForkServer:
    """The fork server, as its parent process uses it.

    Args:
        limit: seconds after which a command is killed.
    """

    def __init__(self, limit: float = 60.0) -> None:
        self.limit = limit

    def __enter__(self) -> Self:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.fork_server", str(self.limit)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def run(self, command: CommandLine) -> Ended:
        """Run a command line to its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        out, err = (Path(f"{command.folder}.{name}") for name in ("out", "err"))
        for file in (out, err):
            file.touch()  # the process may be killed before it opens them
        self.process.stdin.write(json.dumps(asdict(command)) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        texts = [file.read_bytes().decode("utf-8", "backslashreplace") for file in (out, err)]
        for file in (out, err):
            file.unlink()
        return Ended(answer["code"], answer["seconds"], *texts)


def serve(limit: float) -> None:
    """Answer requests until standard input ends."""
    import fedwca

    for module in pkgutil.walk_packages(fedwca.__path__, "fedwca."):
        if ".flower" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or the collector of each fork goes through all that is imported, and so copies its memory
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(_forked(CommandLine(**json.loads(line)), limit)), file=answers, flush=True)


def _forked(command: CommandLine, limit: float) -> dict[str, Any]:
    """Run a command line in a forked process; return its exit code and its seconds."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        _become(command)
    deadline, status = start + limit, None
    moment = math.inf if command.kill_after is None else start + command.kill_after
    while status is None:
        pid, wait_status = os.waitpid(child, os.WNOHANG)
        if pid:
            status = wait_status
        elif time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
        elif time.monotonic() >= moment:
            os.kill(child, command.kill_by)
            moment = math.inf
        else:
            time.sleep(max(0.0, min(0.005, moment - time.monotonic())))
    code = os.waitstatus_to_exitcode(status)
    return {"code": code if code >= 0 else 128 - code, "seconds": time.monotonic() - start}


def _become(command: CommandLine) -> None:
    """Run the command line in this process and exit; does not return."""
    try:
        os.chdir(command.folder)
        os.environ.clear()
        os.environ.update(command.environment)
        _open_streams(command)
        if command.file_size is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (command.file_size, command.file_size))
        if command.files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (command.files, command.files))
        sys.argv = ["fedwca", *command.words]
        from fedwca.cli import main

        exec(command.before, {})
        main()
        code = 0
    except SystemExit as exit_request:
        code = exit_request.code if isinstance(exit_request.code, int) else 0 if exit_request.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = code or 120  # as the interpreter does at its end
    os._exit(code)


def _open_streams(command: CommandLine) -> None:
    targets = {
        0: ("/dev/null", os.O_RDONLY),
        1: ("/dev/full" if command.full else f"{command.folder}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        2: (f"{command.folder}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    }
    for number, (path, flags) in targets.items():
        descriptor = os.open(path, flags, 0o644)
        if descriptor != number:
            os.dup2(descriptor, number)
            os.close(descriptor)
    names = {0: "stdin", 1: "stdout", 2: "stderr"}
    for number, name in names.items():
        mode = "r" if number == 0 else "w"
        stream = None
        if number not in command.closed:
            errors = "backslashreplace" if number == 2 else "strict"
            raw = os.fdopen(number, f"{mode}b", closefd=False)
            stream = io.TextIOWrapper(raw, encoding=command.encoding, errors=errors, line_buffering=number == 2)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for number in command.closed:
        os.close(number)


if __name__ == "__main__":
    serve(float(sys.argv[1]))
    os._exit(0)  # nothing is left to do; taking all modules down again can take a minute
