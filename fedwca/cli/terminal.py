"""The one way to a terminal: whatever names hold, nothing in them is taken for markup or moves the cursor."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.text import Text

from fedwca.core.printable import ENCODING_ERRORS, printable


class PlainConsole(Console):
    """A console whose strings are text alone; styles come from what prints them."""

    def render_str(self, text: str, **more: Any) -> Text:
        """Text as it is, without markup, emoji codes or control characters."""
        return super().render_str(printable(text, lines=True), **{**more, "markup": False, "emoji": False})


def make_console(stderr: bool = False) -> Console:
    """A console on stdout or stderr."""
    return PlainConsole(stderr=stderr, markup=False, emoji=False)


def say(text: object, err: bool = False, nl: bool = True) -> None:
    """Print a line, or with ``err`` say it on stderr, where a line that cannot be written stops nothing.

    Raises:
        OSError: stdout cannot be written.
    """
    try:
        typer.echo(printable(str(text), lines=True), err=err, nl=nl)
    except OSError:
        if not err:
            raise
        drop_unwritten(sys.stderr)


def drop_unwritten(stream: TextIO | None) -> None:
    """What a stream cannot write goes nowhere, not even at shutdown."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def prepare_streams() -> None:
    """Make stdout and stderr take any text: what an encoding lacks is written out, what is closed takes nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123  # for as long as the process lives
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ENCODING_ERRORS)
