"""Tables of the docs: notes are Markdown of our own, which `Table.markdown` would take for a stranger's text."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.results.tables import Table


def noted(table: Table, notes: Sequence[str]) -> str:
    """A table in Markdown with notes below it, to the letter."""
    return "\n".join([table.markdown(), "", *notes])
