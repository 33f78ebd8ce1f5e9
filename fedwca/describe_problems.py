"""Error sentences for an unknown name or invalid values; each says what would be right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import TypeGuard, get_args

from pydantic import BaseModel, ValidationError

BRANCH = re.compile(r"(constrained-\w+|[\w-]+\[.*\])$")
"""What pydantic calls branches of a union in the location of a problem, where no field can have that name."""


def describe_unknown(kind: str, name: str, known_names: Iterable[str], hint: str = "") -> str:
    """The error sentence for an unknown name, with the closest known name and the list of all.

    Args:
        kind: what has such names.
        name: the unknown one.
        known_names: all that exist.
        hint: end of the sentence where no known name is close.

    >>> describe_unknown("aggregator", "wac", ["fedavg", "wca"])
    "no aggregator 'wac'; did you mean 'wca'? Known: fedavg, wca"
    """
    names = list(known_names)
    close = difflib.get_close_matches(name, names, 1)
    known = f"Known: {', '.join(names)}"
    return f"no {kind} {name!r}; did you mean {close[0]!r}? {known}" if close else f"no {kind} {name!r}. {known}{hint}"


def describe_problems(error: ValidationError, prefix: str = "", model: type[BaseModel] | None = None) -> str:
    """A pydantic error as one sentence: for each field its name, what would be right, and what was given.

    Args:
        error: raised by a pydantic model.
        prefix: put before each field's name, and without its last sign before a problem of several fields.
        model: that was validated, to suggest the closest one for an unknown field.
    """
    lines: list[str] = []
    previous_location = ""
    items = error.errors()
    for item in items:
        has_item_errors = any(other["loc"][:-1] == item["loc"] for other in items)
        if has_item_errors and item["type"] == "too_short":  # pydantic counts invalid items as missing
            continue
        # For a union pydantic adds the type of the branch to the location; keep only the fields that the user wrote.
        location = ".".join(str(part) for part in item["loc"] if isinstance(part, int) or not BRANCH.match(part))
        problem = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            close = difflib.get_close_matches(str(item["loc"][-1]), _fields_at(model, item["loc"][:-1]), 1)
            problem = "there is no such field" + (f"; did you mean {close[0]!r}?" if close else "")
        elif item["type"] == "missing":
            problem = "must be given"
        elif item["type"] in ("tuple_type", "list_type") and isinstance(item["input"], str):
            problem = describe_missing_list(item["input"])
        is_plain = isinstance(item["input"], str | int | float | None)
        input_note = f" (given {_shortened(item['input'])})" if is_plain and location else ""
        if location and location == previous_location:
            lines[-1] += f", or: {problem}"
        else:
            where = f"{prefix}{location}" if location else prefix.rstrip(".: ")
            lines.append(f"{where}: {problem}{input_note}" if where else problem)
        previous_location = location
    return "; ".join(lines)


def _fields_at(model: object, location: Sequence[int | str]) -> list[str]:
    """Names of the fields of a model, or of the one in a field of it; none if there is no model."""
    for part in location:
        field = model.model_fields.get(str(part)) if _is_model(model) else None
        types = [] if field is None else [field.annotation, *get_args(field.annotation)]
        model = next((type_ for type_ in types if _is_model(type_)), None)
    return list(model.model_fields) if _is_model(model) else []


def _is_model(value: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(value, type) and issubclass(value, BaseModel)


def describe_missing_list(word: str) -> str:
    """The error text for a single word where a list of words is needed.

    >>> describe_missing_list("fedavg")
    "needs a list, such as ['fedavg']"
    """
    return f"needs a list, such as [{_shortened(word)}]"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
