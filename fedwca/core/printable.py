"""Text from files and command lines, made harmless for where it is shown: nothing in a name moves a cursor, turns the
line around, or is taken for a formula.
"""

from __future__ import annotations

import codecs
import unicodedata

JOINERS = "\u200c\u200d"
"""Invisible, but letters of some scripts and some emoji are joined by them."""
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
"""Signs of ours in ASCII, for terminals whose encoding lacks them."""


def printable(text: str, lines: bool = False) -> str:
    r"""Text with everything that has no shape of its own written out as in Python.

    That is control characters, invisible and direction-changing ones, separators of lines, and halves of surrogate
    pairs, as file names have that are not UTF-8.

    Args:
        text: any.
        lines: ends of lines and tabs stay as they are.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    >>> print(printable("FedWCA \u202e[ours]"))
    FedWCA \u202e[ours]
    """
    if text.isprintable():
        return text
    return "".join(letter if _has_shape(letter, lines) else _written_out(letter) for letter in text)


def _has_shape(letter: str, lines: bool) -> bool:
    if letter.isprintable() or letter in JOINERS or (lines and letter in "\n\t"):
        return True
    return unicodedata.category(letter) == "Zs"  # blanks of all widths


def _written_out(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def _replace_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(PLAIN.get(sign, _written_out(sign)) for sign in signs), error.end


ENCODING_ERRORS = "fedwca_signs"
"""Name of the error handler for streams: signs of ours as ASCII, all else that cannot be encoded written out."""
codecs.register_error(ENCODING_ERRORS, _replace_signs)
