"""For the documentation site: doctests at the end of docstrings become an "Examples" section of their own."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^|\n\n)((?:>>> .*)(?:\n(?!\n).*)*)")


class Doctests(griffe.Extension):
    """Docstrings of this project write a doctest as a paragraph; sections are what the site can show as code."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **_: Any) -> None:
        """Indent each such paragraph under "Examples:"."""
        if isinstance(obj, griffe.Alias) or obj.docstring is None or "Examples:" in obj.docstring.value:
            return
        obj.docstring.value = EXAMPLE.sub(
            lambda found: "\n\nExamples:\n" + "\n".join(f"    {line}" for line in found[1].splitlines()),
            obj.docstring.value,
        )
