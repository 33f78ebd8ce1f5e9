"""All terminal output: text is printed as it is, never read as markup, and cannot move the cursor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer
from rich.console import Console
from rich.text import Text

from fedwca.core.printable import ENCODING_ERRORS, printable

if TYPE_CHECKING:
    from rich.status import Status


class PlainConsole(Console):
    """A console that prints strings as plain text; styles are set by the caller."""

    def render_str(self, text: str, **more: Any) -> Text:
        """The string as text, with control characters made printable and markup and emoji codes not interpreted."""
        return super().render_str(printable(text, lines=True), **{**more, "markup": False, "emoji": False})


class _LenientStream:
    """A stream that discards its output once it cannot be written, such as that of a terminal that was closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            drop_unwritten(self._stream)
            return len(text)

    def flush(self) -> None:
        drop_unwritten(self._stream)


class Waiting:
    """A status line on a terminal, from a second after a command begins until it prints something.

    Imports take seconds, and drawing the digits data set for the first time takes a quarter of a minute.
    """

    AFTER = 1.0
    """Seconds of delay, so that commands that answer at once do not show the line."""

    def __init__(self) -> None:
        self._guard, self._text = Lock(), ""
        self._timer: Timer | None = None
        self._status: Status | None = None

    @contextmanager
    def showing(self, text: str) -> Iterator[None]:
        """Show the line while inside; does nothing where stderr is no terminal."""
        console = _console(stderr=True)
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
        """Change the text of the line."""
        with self._guard:
            self._text = text
            if self._status is not None:
                self._status.update(text)

    def end(self) -> None:
        """Remove the line for good."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
            if self._status is not None:
                self._status.stop()
            self._timer = self._status = None

    def _show(self, console: Console) -> None:
        with self._guard:
            if self._timer is not None:
                self._status = console.status(self._text, spinner="line")  # in ASCII, which any terminal has
                self._status.start()


WAITING = Waiting()


def make_console(stderr: bool = False) -> Console:
    """A console on stdout, or on stderr, where a write error is ignored; ends the waiting line."""
    WAITING.end()
    return _console(stderr)


def _console(stderr: bool) -> Console:
    file = cast(TextIO, _LenientStream(sys.stderr)) if stderr else None
    return PlainConsole(file=file, markup=False, emoji=False)


def say(text: object, err: bool = False, nl: bool = True) -> None:
    """Print a line on stdout, or with ``err`` on stderr, where a write error is ignored.

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
    """Flush a stream; if that fails, send its output to the null device, so that closing it raises no error."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def prepare_streams() -> None:
    """Make stdout and stderr accept any text: what they cannot encode is escaped; a missing stream discards all."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # open until the process ends
            setattr(sys, name, null)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ENCODING_ERRORS)
