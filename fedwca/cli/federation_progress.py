"""Progress of a deployed run: log lines, and on a terminal a status line below them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from rich.status import Status

from fedwca.cli.terminal import make_console
from fedwca.deploy.server_status import STATUS, LogTail, read_status

LOOK = 1.0
"""Seconds between two reads of the server's folder."""


class FederationProgress:
    """Prints progress from the files that a server writes; create it before the run is submitted.

    Args:
        server: the server's folder.
    """

    def __init__(self, server: Path) -> None:
        self.server, self.log = server, LogTail(server)
        (server / STATUS).unlink(missing_ok=True)  # left by an earlier run
        self.console = make_console(stderr=True)
        self.line: Status | None = None
        self.ended = False

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
            if self.ended:
                return
            self.look()

    def look(self) -> None:
        """Print new log lines and update the status line."""
        for line in self.log.lines():
            self.ended = self.ended or line.is_last
            if self.line is None or line.level != "INFO":  # the status line shows the same
                prefix = {"INFO": "", "": "  "}.get(line.level, f"{line.level.capitalize()}: ")
                self.console.print(f"{prefix}{line.text}", soft_wrap=True, highlight=False)
        status = read_status(self.server)
        if self.line is not None and status is not None:
            self.line.update(str(status))
