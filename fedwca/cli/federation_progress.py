"""Progress of a deployed run: log lines, and on a terminal a status line below them."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Self

from rich.status import Status

from fedwca.cli.terminal import make_console
from fedwca.deploy.server_status import LogTail, read_status

LOOK = 1.0
"""Seconds between two reads of the server's folder."""
SLOW = 60.0
"""Seconds after which a run that has not begun is warned of; it begins in a few."""


class FederationProgress:
    """Prints progress from the files that a server writes: the log lines that are written from now on.

    Args:
        server: the server's folder.
    """

    def __init__(self, server: Path) -> None:
        self.server, self.log = server, LogTail(server)
        self.console = make_console(stderr=True)
        self.line: Status | None = None
        self.last = ""
        """The last line of the run; empty: it has not ended."""
        self._slow_at = time.monotonic() + SLOW

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.line = self.console.status("the server begins")
            self.line.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        if self.line is not None:
            self.line.stop()

    def wait(self, seconds: float) -> None:
        """Print what is new for so many seconds, or until the log says that the run has ended."""
        deadline = time.monotonic() + seconds
        self.look()
        while (remaining := deadline - time.monotonic()) > 0:
            time.sleep(min(LOOK, remaining))
            if self.last:
                return
            self.look()

    def look(self) -> None:
        """Print new log lines and update the status line."""
        for line in self.log.lines():
            self.last = line.text if line.is_last else self.last
            self._slow_at = math.inf
            if self.line is None or line.level != "INFO":  # the status line shows the same
                prefix = {"INFO": "", "": "  "}.get(line.level, f"{line.level.capitalize()}: ")
                self.console.print(f"{prefix}{line.text}", soft_wrap=True, highlight=False)
        status = read_status(self.server)
        if self.line is not None and status is not None:
            self.line.update(str(status))
        if status is None and time.monotonic() > self._slow_at:
            self._slow_at = math.inf
            self.console.print(
                f"Warning: the server has not begun the run in {SLOW:.0f} s; what fedwca server prints may say why",
                soft_wrap=True,
                highlight=False,
            )
