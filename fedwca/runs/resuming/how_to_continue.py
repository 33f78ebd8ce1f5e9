"""Messages for a run that was stopped or failed: how many rounds are kept, and how to continue it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedwca.core.printable import quote_path
from fedwca.results.diverged_runs import count_ended_rounds
from fedwca.results.read_run import read_run
from fedwca.results.write_run import RunFolder
from fedwca.runs.reporter import RunReporter


def say_how_to_continue(folder: Path) -> str:
    """The command that continues the run in a folder."""
    return f"continue with: fedwca resume {quote_path(folder)}"


@contextmanager
def explain_interrupt(folder: RunFolder, reporter: RunReporter) -> Iterator[None]:
    """Add to a KeyboardInterrupt from the body a message that says what is kept of the run, and raise it again.

    Args:
        folder: the run's folder.
        reporter: notified of the interruption if the run can be continued.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        path = folder.path
        if (path / "config.json").is_file() and read_run(path).complete:
            message = f"Stopped while its loggers ended; the run in {path} is complete"
        elif (path / "config.json").is_file():
            finished_rounds = count_ended_rounds(folder.records())
            reporter.interrupted(finished_rounds, path)
            message = say_what_is_kept(finished_rounds, path)
        else:
            message = f"Stopped before the first round; nothing is kept in {path}, and the same command begins anew"
        interrupt.args = (message,)  # the same exception object, since callers may check its type
        raise


def say_what_is_kept(finished_rounds: int, folder: Path) -> str:
    """The sentence for a run that was stopped and can be continued.

    Args:
        finished_rounds: number of finished rounds.
        folder: the run's folder.

    >>> say_what_is_kept(1, Path("runs/mine"))
    'Stopped; 1 round is kept in runs/mine; continue with: fedwca resume runs/mine'
    """
    rounds_text = "1 round is" if finished_rounds == 1 else f"{finished_rounds} rounds are"
    summary = ", with a summary" if (folder / "summary.json").is_file() else ""
    return f"Stopped; {rounds_text} kept in {folder}{summary}; {say_how_to_continue(folder)}"
