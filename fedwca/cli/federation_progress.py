"""How a deployed run goes on: on a terminal a line that changes, below what happened; elsewhere what happened alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from rich.status import Status

from fedwca.cli.terminal import make_console
from fedwca.deploy.server_status import STATUS, LogTail, read_status

LOOK = 1.0
"""Seconds between two looks into the server's folder."""


class FederationProgress:
    """Watches the files that a server writes; to be made before a run is submitted.

    Args:
        server: the server's folder.
    """

    def __init__(self, server: Path) -> None:
        self.server, self.log = server, LogTail(server)
        (server / STATUS).unlink(missing_ok=True)  # of an earlier run
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
        """Look now and then for so many seconds, or until the log says that the run has ended."""
        until = time.monotonic() + seconds
        self.look()
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(LOOK, left))
            if self.ended:
                return
            self.look()

    def look(self) -> None:
        """Say what is new."""
        for line in self.log.lines():
            self.ended = self.ended or line.is_last
            if self.line is None or line.level != "INFO":  # the line that changes says the same
                word = {"INFO": "", "": "  "}.get(line.level, f"{line.level.capitalize()}: ")
                self.console.print(f"{word}{line.text}", soft_wrap=True, highlight=False)
        status = read_status(self.server)
        if self.line is not None and status is not None:
            self.line.update(str(status))
