"""Commands of fedwca in processes forked from this one, for same_numbers.py; no script."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkProcess
from pathlib import Path


def run_command(words: str, out: Path) -> None:
    """Run ``python -m fedwca`` as `start_command` does, and wait for its end; SystemExit if it fails."""
    wait_for(start_command(words, out), words)


def start_command(words: str, out: Path, environment: Mapping[str, str] | None = None) -> ForkProcess:
    """Start ``python -m fedwca`` with these arguments; stdout goes to a file, stderr to a ``.log`` file beside it."""

    def main() -> None:
        os.environ.update(environment or {})
        sys.argv = ["fedwca", *shlex.split(words)]
        runpy.run_module("fedwca", run_name="__main__", alter_sys=True)

    return start_process(main, out)


def start_process(work: Callable[[], None], out: Path) -> ForkProcess:
    """Start a function in a forked process, with its output in files as of `start_command`."""

    def run_redirected() -> None:
        for stream, path in ((sys.stdout, out), (sys.stderr, out.with_suffix(".log"))):
            with path.open("a") as file:
                os.dup2(file.fileno(), stream.fileno())
        try:
            work()
        finally:
            sys.stdout.flush()

    process = multiprocessing.get_context("fork").Process(target=run_redirected)
    process.start()
    return process


def wait_for(process: ForkProcess, words: str) -> None:
    """Wait for a process's end; SystemExit with the command's ``words`` if it failed."""
    process.join()
    if process.exitcode:
        raise SystemExit(f"fedwca {words}\nin {Path.cwd()}: failed with {process.exitcode}; see its .log there")
