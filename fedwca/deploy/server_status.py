"""What a server says of a run while it goes on, in two files: how far it is, and a log of what happened."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fedwca.core.files import write_text_atomically

LOG, STATUS = "federation.log", "status.json"
RUNNING = "running"
"""A file that is locked while a run goes on: two would write the same checkpoint."""
COMPLETE, FAILED, STOPPED = "FEDWCA RUN COMPLETE", "the run failed", "the run was stopped"
"""How the last line of a run begins."""
LINE = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ (?P<level>[A-Z]+) (?P<text>.*)")
"""A line of the log as the server's app writes it."""


@dataclass(frozen=True)
class ServerStatus:
    """How far a run is."""

    rounds: int
    """Of the run, in all."""
    clients: int
    """Places of the federation."""
    done: int = 0
    """Rounds that are done."""
    connected: int = 0
    """Clients that can be reached."""
    asked: int = 0
    """Clients that were sent something and have time to answer; 0 between rounds."""

    def __str__(self) -> str:
        """In a line.

        >>> str(ServerStatus(3, 4, done=1, connected=4, asked=2))
        '1 of 3 rounds done; 4 of 4 clients connected; 2 clients at work'
        """
        work = f"; {self.asked} {'client' if self.asked == 1 else 'clients'} at work" if self.asked else ""
        return f"{self.done} of {self.rounds} rounds done; {self.connected} of {self.clients} clients connected{work}"


def write_status(server: Path, status: ServerStatus) -> None:
    """Put a status in place of the one before; a disk that is full stops no federation."""
    text = json.dumps(asdict(status)) + "\n"
    with suppress(OSError):
        write_text_atomically(server / STATUS, text)


def read_status(server: Path) -> ServerStatus | None:
    """The status in a server's folder; None where none can be read."""
    try:
        found = json.loads((server / STATUS).read_text(encoding="utf-8"))
        return ServerStatus(**{name: int(value) for name, value in found.items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


@dataclass(frozen=True)
class LogLine:
    """What happened."""

    level: str
    """Of Python's logging; empty for a line that goes on with the one before."""
    text: str

    @property
    def is_last(self) -> bool:
        """Whether it says how the run ended."""
        return self.text.startswith((COMPLETE, FAILED, STOPPED))


class LogTail:
    """The log of a server's folder from now on.

    Args:
        server: the folder; the log need not be there yet.
    """

    MOST = 1 << 20
    """Bytes that are read at once."""

    def __init__(self, server: Path) -> None:
        self.path = server / LOG
        self._read = self.path.stat().st_size if self.path.is_file() else 0

    def lines(self) -> list[LogLine]:
        """What has been written whole since the last call."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read:  # begun anew
                    self._read = 0
                file.seek(self._read)
                found = file.read(self.MOST)
        except OSError:
            return []
        whole = found[: found.rfind(b"\n") + 1]
        self._read += len(whole)
        return [_parse_line(line) for line in whole.decode(errors="replace").splitlines()]


def _parse_line(line: str) -> LogLine:
    found = LINE.fullmatch(line)
    return LogLine(found["level"], found["text"]) if found else LogLine("", line)
