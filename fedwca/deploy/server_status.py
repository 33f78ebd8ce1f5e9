"""The two files in which a server reports on a run in progress: its status and its log."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fedwca.core.count_of import count_of
from fedwca.core.files import write_text_atomically

LOG, STATUS = "federation.log", "status.json"
RUNNING = "running"
"""A file that is locked during a run: two runs at once would write the same checkpoint."""
SUBMITTED = "submitted"
"""A file that `fedwca deploy run` locks while it waits: a run that it submits locks the other one seconds later."""
COMPLETE, FAILED, STOPPED = "FEDWCA RUN COMPLETE", "the run failed", "the run was stopped"
"""Beginnings of the last line of a run."""
LINE = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ (?P<level>[A-Z]+) (?P<text>.*)")
"""A line of the log as the ServerApp writes it."""
LAST_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")
"""A character of several bytes in UTF-8 at the end of a text, whose last bytes may be missing."""


@dataclass(frozen=True)
class ServerStatus:
    """The progress of a run."""

    rounds: int
    """Rounds of the run in total."""
    clients: int
    """Places of the federation."""
    done: int = 0
    """Finished rounds."""
    connected: int = 0
    """Clients that can be reached."""
    asked: int = 0
    """Clients that were sent a message and whose answer is awaited; 0 between rounds."""

    def __str__(self) -> str:
        """Return the status as one line.

        >>> str(ServerStatus(3, 4, done=1, connected=4, asked=2))
        '1 of 3 rounds done; 4 of 4 clients connected; 2 clients at work'
        """
        work = f"; {count_of(self.asked, 'client')} at work" if self.asked else ""
        return f"{self.done} of {self.rounds} rounds done; {self.connected} of {self.clients} clients connected{work}"


def write_status(server: Path, status: ServerStatus) -> None:
    """Replace the status file; an OS error such as a full disk is ignored, so that the federation goes on."""
    text = json.dumps(asdict(status)) + "\n"
    with suppress(OSError):
        write_text_atomically(server / STATUS, text)


def read_status(server: Path) -> ServerStatus | None:
    """Return the status in a server's folder; None if it cannot be read."""
    try:
        fields = json.loads((server / STATUS).read_text(encoding="utf-8"))
        return ServerStatus(**{name: int(value) for name, value in fields.items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


@dataclass(frozen=True)
class LogLine:
    """One line of the log."""

    level: str
    """Level name of Python's logging; empty for a line that continues the previous one."""
    text: str

    @property
    def is_last(self) -> bool:
        """Whether the line says how the run ended."""
        return self.text.startswith((COMPLETE, FAILED, STOPPED))


class LogTail:
    """Reads the lines that are appended to the log in a server's folder from now on.

    Args:
        server: the folder; the log need not exist yet.
    """

    MOST = 1 << 20
    """Largest number of bytes read at once."""

    def __init__(self, server: Path) -> None:
        self.path = server / LOG
        self._read = self.path.stat().st_size if self.path.is_file() else 0

    def lines(self) -> list[LogLine]:
        """Return the complete lines that were written since the last call."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read:  # the file was replaced or truncated
                    self._read = 0
                file.seek(self._read)
                data = file.read(self.MOST)
        except OSError:
            return []
        if len(data) == self.MOST and b"\n" not in data:  # a longer line comes in parts, cut between characters
            complete = LAST_CHARACTER.sub(b"", data)
        else:
            complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        return [_parse_line(line) for line in complete.decode(errors="replace").splitlines()]


def _parse_line(line: str) -> LogLine:
    match = LINE.fullmatch(line)
    return LogLine(match["level"], match["text"]) if match else LogLine("", line)
