"""Note and tags of a run, which can be changed at any time and do not affect its numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedwca.core.files import name_unwritable, write_text_atomically
from fedwca.core.printable import printable
from fedwca.errors import UsageError
from fedwca.results.lock import NOTES, hold_lock
from fedwca.results.read_run_files import read_notes


def check_tags(tags: Sequence[str]) -> list[str]:
    """The tags in order, without duplicates.

    Raises:
        UsageError: a tag is not one word of printable characters without commas.

    >>> check_tags(["night", "lr", "night"])
    ['night', 'lr']
    """
    for tag in tags:
        if not isinstance(tag, str) or not re.fullmatch(r"[^\s,]+", tag) or printable(tag) != tag:
            raise UsageError(f"tag {tag!r}: a tag is one word, without blanks and commas; --note takes a sentence")
    return list(dict.fromkeys(tags))


def change_notes(
    run: Path, note: str | None = None, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> dict[str, Any]:
    """Change ``notes.json`` of a run folder and return its new content.

    Args:
        run: the run folder; the run may be training meanwhile.
        note: the new note; None: the present one is kept.
        add: tags to add.
        remove: tags to remove.

    Raises:
        UsageError: a tag is not one word, or the run does not have a tag that is to be removed.
        FedwcaError: the file is damaged or cannot be written.
    """
    notes_lock = hold_lock(run, 10, NOTES)  # not the run's own lock, which is held while it trains
    try:
        return _change_notes(run, note, add, remove)
    finally:
        notes_lock.release()


def _change_notes(run: Path, note: str | None, add: Sequence[str], remove: Sequence[str]) -> dict[str, Any]:
    notes = read_notes(run)
    if absent := [tag for tag in remove if tag not in notes["tags"]]:
        present_tags = ", ".join(notes["tags"]) or "none"
        raise UsageError(f"{run}: has no tag {absent[0]!r}; its tags: {present_tags}")
    tags = [tag for tag in dict.fromkeys([*notes["tags"], *check_tags(add)]) if tag not in remove]
    updated = {"note": notes["note"] if note is None else printable(note), "tags": tags}
    file = run / "notes.json"
    with name_unwritable(file):
        write_text_atomically(file, json.dumps(updated, indent=2) + "\n")
    return updated
