"""The ID by which tracking libraries recognise a run folder."""

from __future__ import annotations

import uuid
from pathlib import Path

from fedwca.core.files import write_text_atomically


def name_run(run: Path) -> str:
    """The name of a run folder, which ``.`` and ``..`` do not say."""
    return run.resolve().name if run.name in ("", "..") else run.name


def tracking_id(run: Path) -> str:
    """The ID of a run, 32 hex digits, drawn once and kept in its folder.

    The folder's path is no ID: another run may have it after the folder was removed, or on another machine.
    """
    file = run / "tracking_id"
    if not file.is_file():
        write_text_atomically(file, uuid.uuid4().hex)
    return file.read_text().strip()
