"""What a run that was stopped or failed tells the user: how many rounds are kept, and how to continue it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote


def say_how_to_continue(folder: Path) -> str:
    """The command that continues the run in a folder."""
    return f"continue with: fedwca resume {quote(str(folder))}"


def say_what_is_kept(done: int, folder: Path) -> str:
    """The sentence for a run that was stopped with Ctrl-C.

    Args:
        done: rounds that ended.
        folder: the run's.

    >>> say_what_is_kept(1, Path("runs/mine"))
    'Stopped; 1 round is kept in runs/mine, with a summary; continue with: fedwca resume runs/mine'
    """
    rounds = "1 round is" if done == 1 else f"{done} rounds are"
    return f"Stopped; {rounds} kept in {folder}, with a summary; {say_how_to_continue(folder)}"
