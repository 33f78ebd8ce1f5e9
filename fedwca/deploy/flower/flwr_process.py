"""Runs Flower's own command, ``flwr``, again and again in one process; started by `fedwca.deploy.flower.flwr_cli`.

A line of standard input is a JSON list of arguments; the line of standard output that answers it is a JSON list of
exit code, standard output and standard error. The process ends with its input, and after a call that failed: Flower's
command may then end its process a little later by itself.

Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points


def call_command(command: Callable[[Sequence[str]], object], arguments: Sequence[str]) -> tuple[int, str, str]:
    """Call a command in this process; return its exit code and what it wrote on standard output and standard error.

    Args:
        command: ends in SystemExit, as one of Click does.
        arguments: its arguments.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        # Flower's command writes on the very first streams, whatever sys.stdout is.
        for number, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), number)
        code = 0
        try:
            command(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            code = 1
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
        return code, texts[0], texts[1]


def answer_calls() -> None:
    """Answer lines of standard input until they end, or until a call fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other process's, which then ends this one
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what is printed while the command is imported is no answer
    command = next(iter(entry_points(group="console_scripts", name="flwr"))).load()
    for line in sys.stdin:
        outcome = call_command(command, json.loads(line))
        answers.write(json.dumps(outcome) + "\n")
        answers.flush()
        if outcome[0]:
            return


if __name__ == "__main__":
    answer_calls()
