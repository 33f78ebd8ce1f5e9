"""What is wrong with a name or with values, as one sentence that says what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import ValidationError


def describe_unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that is not known: the near one, and all there are.

    >>> describe_unknown("aggregator", "wac", ["fedavg", "wca"])
    "no aggregator 'wac'; did you mean 'wca'? Known: fedavg, wca"
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    return f"no {kind} {name!r}" + (f"; did you mean {close[0]!r}?" if close else ".") + f" Known: {', '.join(names)}"


def describe_problems(error: ValidationError, prefix: str = "", fields: Iterable[str] = ()) -> str:
    """A pydantic error as one sentence a field: where, what would be right, what was given.

    Args:
        error: of a model.
        prefix: put before the field.
        fields: the model's fields, to suggest the near one.
    """
    lines: list[str] = []
    at = ""
    items = error.errors()
    for item in items:
        inner = any(other["loc"][:-1] == item["loc"] for other in items)
        if inner and item["type"] == "too_short":  # pydantic counts what is wrong inside as not there
            continue
        # Of a union's branches pydantic names the type; the field is what the user wrote.
        where = ".".join(str(part) for part in item["loc"] if isinstance(part, int) or part.isidentifier())
        what = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            close = difflib.get_close_matches(str(item["loc"][-1]), list(fields), 1)
            what = "there is no such field" + (f"; did you mean {close[0]!r}?" if close else "")
        elif item["type"] in ("tuple_type", "list_type") and isinstance(item["input"], str):
            what = describe_missing_list(item["input"])
        shown = (
            f" (given {_shortened(item['input'])})" if isinstance(item["input"], str | int | float) and where else ""
        )
        if where and where == at:
            lines[-1] += f", or: {what}"
        else:
            lines.append(f"{prefix}{where}: {what}{shown}" if where else what)
        at = where
    return "; ".join(lines)


def describe_missing_list(given: str) -> str:
    """What is wrong with a word where a list of words belongs.

    >>> describe_missing_list("fedavg")
    "needs a list, such as ['fedavg']"
    """
    return f"needs a list, such as [{_shortened(given)}]"


def _shortened(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 100 else f"{text[:100]}…"
