"""A note and tags of a run: given with it or later, and no part of what decides its numbers."""

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
    """Tags, each once.

    Raises:
        UsageError: one is more than a word.

    >>> check_tags(["night", "lr", "night"])
    ['night', 'lr']
    """
    for tag in tags:
        if not re.fullmatch(r"[^\s,]+", tag) or printable(tag) != tag:
            raise UsageError(f"--tag {tag!r}: a tag is one word, without blanks and commas; --note takes a sentence")
    return list(dict.fromkeys(tags))


def change_notes(
    run: Path, note: str | None = None, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> dict[str, Any]:
    """Change what ``notes.json`` of a run folder says; returns all of it.

    Args:
        run: the run folder; a process may be at work on it.
        note: put in place of the one there is; None: that one stays.
        add: tags.
        remove: tags.

    Raises:
        UsageError: a tag is more than a word, or one that is to be removed is not there.
        FedwcaError: the file is damaged, or cannot be written.
    """
    held = hold_lock(run, 10, NOTES)  # not the run's own, which is held while it trains
    try:
        return _change_notes(run, note, add, remove)
    finally:
        held.release()


def _change_notes(run: Path, note: str | None, add: Sequence[str], remove: Sequence[str]) -> dict[str, Any]:
    before = read_notes(run)
    if absent := [tag for tag in remove if tag not in before["tags"]]:
        has = ", ".join(before["tags"]) or "none"
        raise UsageError(f"{run}: has no tag {absent[0]!r}; its tags: {has}")
    tags = [tag for tag in check_tags([*before["tags"], *add]) if tag not in remove]
    found = {"note": before["note"] if note is None else printable(note), "tags": tags}
    file = run / "notes.json"
    with name_unwritable(file):
        write_text_atomically(file, json.dumps(found, indent=2) + "\n")
    return found
