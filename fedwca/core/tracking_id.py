"""What tracking libraries know a run folder by."""

from __future__ import annotations

import uuid
from pathlib import Path

from fedwca.core.files import write_text_atomically


def tracking_id(run: Path) -> str:
    """32 hex digits, drawn once and kept in the run folder.

    A path may be that of another run: after the folder was removed, or on another machine.
    """
    file = run / "tracking_id"
    if not file.is_file():
        write_text_atomically(file, uuid.uuid4().hex)
    return file.read_text().strip()
