"""Name the plugin component that an error came from; plugins run deep inside a round."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from fedwca.component import Component
from fedwca.errors import FedwcaError

OURS = ("fedwca.", "torch.", "torchvision.", "pydantic.")
"""Prefixes of modules whose classes are not plugins."""
BASES = ("fedwca.core.", "fedwca.partitions", "fedwca.datasets", "fedwca.loggers")
"""Prefixes of modules that define base classes of components and of their parts."""


DECLARATIONS = {"pseudo-labeler": "models", "objective": "anchors, teachers or views"}
"""By kind of a component, where it names the models and views that it reads."""


@contextmanager
def naming_failed_part() -> Iterator[None]:
    """Raise a FedwcaError that names the plugin component from which an exception in the body came; it is the cause."""
    try:
        yield
    except FedwcaError:
        raise
    except Exception as error:
        if (failure := describe_part_failure(error)) is None:
            raise
        raise FedwcaError(failure) from error


def describe_part_failure(error: Exception) -> str | None:
    """Which plugin component raised an error, where, and the error; None if no plugin did.

    Args:
        error: an exception with its traceback.
    """
    if (part := find_failed_part(error)) is None:
        return None
    declaration = DECLARATIONS.get(part.split(maxsplit=1)[0])
    advice = ""
    if declaration and isinstance(error, KeyError) and error.args and error.args[0] in _declared_names():
        advice = f" (a model or view that it reads must be named in {declaration})"
    elif isinstance(error, AttributeError) and _was_not_made(error.obj):
        advice = " (its __init__ must call super().__init__ with the fields; fields need no __init__)"
    return f"{part} raised {type(error).__name__}{f': {error}' if str(error) else ''}{advice}"


def _was_not_made(value: object) -> bool:
    """Whether a value is a component without fields, as its own ``__init__`` does not call that of the base class."""
    return isinstance(value, Component) and not hasattr(value, "__pydantic_fields_set__")


def _declared_names() -> tuple[str, ...]:
    """Names of models and views that exist only where they are declared; references of an aggregator do, too."""
    from fedwca.core.objective import ImageView  # loads torch, which a sentence about another error need not wait for

    return ("start", "cluster", "source", *get_args(ImageView))


def find_failed_part(error: BaseException) -> str | None:
    """The innermost plugin component in an error's traceback, with its file and line; None if there is none.

    A line of a method that it inherits from fedwca counts only if there is none of its own.

    Args:
        error: an exception with its traceback.
    """
    own, inherited = None, None
    for frame, line in traceback.walk_tb(error.__traceback__):
        part, module = frame.f_locals.get("self"), frame.f_globals.get("__name__", "")
        if part is None or type(part).__module__.startswith(OURS):
            continue
        bases = [base for base in type(part).__mro__[1:] if base.__module__.startswith(BASES)]
        if bases:
            kind = re.sub("(?<=[a-z])(?=[A-Z])", "-", bases[-1].__name__).lower()
            name = getattr(type(part), "name", None) or type(part).__name__
            description = f"{kind} {name!r} ({Path(frame.f_code.co_filename).name}:{line})"
            if module.startswith("pydantic."):  # which only says that there is no such field
                inherited = inherited or description
            elif module.startswith(OURS):
                inherited = description
            else:
                own = description
    return own or inherited
