"""What a run that was stopped or failed tells the user: how many rounds are kept, and how to continue it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from fedwca.results.diverged_runs import ended_rounds
from fedwca.results.write_run import RunFolder
from fedwca.runs.reporter import RunReporter


def say_how_to_continue(folder: Path) -> str:
    """The command that continues the run in a folder."""
    return f"continue with: fedwca resume {quote(str(folder))}"


@contextmanager
def telling_what_is_kept(folder: RunFolder, reporter: RunReporter) -> Iterator[None]:
    """Let a KeyboardInterrupt from inside say what stays of the run; whoever catches it shows that.

    Args:
        folder: the run's.
        reporter: told where the run can be continued.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        path = folder.path
        if (path / "config.json").is_file():
            done = sum(record["round"] >= 0 for record in ended_rounds(folder.records()))
            reporter.interrupted(done, path)
            why = say_what_is_kept(done, path)
        else:
            why = f"Stopped before the first round; nothing is kept in {path}, and the same command begins anew"
        stopped.args = (why,)  # the same exception, which whoever stopped the run may know by its type
        raise


def say_what_is_kept(done: int, folder: Path) -> str:
    """The sentence for a run that was stopped and can be continued.

    Args:
        done: rounds that ended.
        folder: the run's.

    >>> say_what_is_kept(1, Path("runs/mine"))
    'Stopped; 1 round is kept in runs/mine; continue with: fedwca resume runs/mine'
    """
    rounds = "1 round is" if done == 1 else f"{done} rounds are"
    summary = ", with a summary" if (folder / "summary.json").is_file() else ""
    return f"Stopped; {rounds} kept in {folder}{summary}; {say_how_to_continue(folder)}"
