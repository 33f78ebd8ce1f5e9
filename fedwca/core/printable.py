"""Text from files and command lines, made safe to show.

Nothing in a name moves the cursor, reverses the direction of a line, or is taken for a formula.
"""

from __future__ import annotations

import codecs
import shlex
import unicodedata
from pathlib import PurePath, PureWindowsPath

JOINERS = "\u200c\u200d"
"""Invisible characters that are kept, because they join letters of some scripts and parts of some emoji."""
PLAIN = {
    "–": "-",
    "−": "-",
    "±": "+-",
    "×": "x",
    "…": "...",
    "→": "->",
    "≥": ">=",
    "≤": "<=",
    "·": "*",
    "“": '"',
    "”": '"',
}
"""ASCII replacements of characters in this library's messages, for terminals whose encoding lacks them."""


def printable(text: str, lines: bool = False) -> str:
    r"""Text with all invisible characters replaced by Python's escapes.

    These are control characters, invisible and direction-changing ones, line separators, and halves of surrogate pairs,
    which file names have that are not UTF-8.

    Args:
        text: any text.
        lines: whether newlines and tabs stay as they are.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    >>> print(printable("FedWCA \u202e[ours]"))
    FedWCA \u202e[ours]
    """
    if text.isprintable():
        return text
    return "".join(character if _has_shape(character, lines) else _written_out(character) for character in text)


def join_accents(text: str) -> str:
    r"""Text in Unicode's composed form (NFC): macOS writes letters and their accents as two characters in file names.

    >>> len("o\u0308"), len(join_accents("o\u0308"))
    (2, 1)
    """
    return unicodedata.normalize("NFC", text)


def _has_shape(character: str, lines: bool) -> bool:
    if character.isprintable() or character in JOINERS or (lines and character in "\n\t"):
        return True
    return unicodedata.category(character) == "Zs"  # blanks of all widths


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def quote_path(path: PurePath) -> str:
    r"""A path as a word of a command to paste, in quotes where a shell needs some.

    The command prompt of Windows knows no single quotes, and no path there holds a double one.

    >>> print(quote_path(PureWindowsPath(r"my runs\first")))
    "my runs/first"
    """
    word = shlex.quote(path.as_posix())
    return f'"{path.as_posix()}"' if word.startswith("'") and isinstance(path, PureWindowsPath) else word


def _replace_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, _written_out(character)) for character in characters), error.end


ENCODING_ERRORS = "fedwca_signs"
"""Name of the error handler for streams: replaces characters by `PLAIN`, and escapes others that cannot be encoded."""
codecs.register_error(ENCODING_ERRORS, _replace_signs)
