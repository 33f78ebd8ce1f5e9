"""The one way to a terminal: whatever names hold, nothing in them is taken for markup or moves the cursor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console
from rich.text import Text

from fedwca.core.printable import ENCODING_ERRORS, printable

if TYPE_CHECKING:
    from rich.status import Status


class PlainConsole(Console):
    """A console whose strings are text alone; styles come from what prints them."""

    def render_str(self, text: str, **more: Any) -> Text:
        """Text as it is, without markup, emoji codes or control characters."""
        return super().render_str(printable(text, lines=True), **{**more, "markup": False, "emoji": False})


class Waiting:
    """A line on a terminal that says that a command is at work, from a second after it began until it says something.

    Imports take seconds, and digits that are drawn for the first time a quarter of a minute.
    """

    AFTER = 1.0
    """Seconds, so that commands that answer at once show none of it."""

    def __init__(self) -> None:
        self._guard, self._text = Lock(), ""
        self._timer: Timer | None = None
        self._status: Status | None = None

    @contextmanager
    def showing(self, text: str) -> Iterator[None]:
        """Wait while inside; nothing where stderr is no terminal."""
        console = PlainConsole(stderr=True, markup=False, emoji=False)
        if not console.is_terminal:
            yield
            return
        self._text, self._timer = text, Timer(self.AFTER, self._show, (console,))
        self._timer.daemon = True
        self._timer.start()
        try:
            yield
        finally:
            self.end()

    def say(self, text: str) -> None:
        """What it is at now."""
        with self._guard:
            self._text = text
            if self._status is not None:
                self._status.update(text)

    def end(self) -> None:
        """Take the line away, for good."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
            if self._status is not None:
                self._status.stop()
            self._timer = self._status = None

    def _show(self, console: Console) -> None:
        with self._guard:
            if self._timer is not None:
                self._status = console.status(self._text)
                self._status.start()


WAITING = Waiting()


def make_console(stderr: bool = False) -> Console:
    """A console on stdout or stderr."""
    WAITING.end()
    return PlainConsole(stderr=stderr, markup=False, emoji=False)


def say(text: object, err: bool = False, nl: bool = True) -> None:
    """Print a line, or with ``err`` say it on stderr, where a line that cannot be written stops nothing.

    Raises:
        OSError: stdout cannot be written.
    """
    WAITING.end()
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
