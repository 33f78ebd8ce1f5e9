"""What is wrong with the class of a plugin, found when the class is made."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from fedwca.errors import first_line
from fedwca.user_values import UserValues


def describe_wrong_class_variable(cls: type[UserValues]) -> str | None:
    """What is wrong with a class variable that a plugin sets, by the annotation in its base class; None if nothing."""
    if cls.__module__.startswith("fedwca."):  # checked by mypy
        return None
    for name, value in vars(cls).items():
        declared = _class_variable_type(cls, name)
        if declared is None or hasattr(value, "__get__"):  # such as a property
            continue
        try:
            TypeAdapter(declared, config=ConfigDict(strict=True)).validate_python(_as_plain(value))
        except PydanticSchemaGenerationError:  # a type that pydantic cannot check
            continue
        except ValidationError:
            wanted = declared.__name__ if isinstance(declared, type) and not get_args(declared) else str(declared)
            right = re.sub(r"\b(?:\w+\.)+(?=\w)", "", wanted)
            example = f", such as ({value!r},)" if isinstance(value, str) and right.startswith("tuple") else ""
            return f"{cls.__name__}.{name} is {value!r}; right is {right}{example}"
    return None


def _as_plain(value: Any) -> Any:
    """A value as the type that base classes declare, where its own does as well."""
    if isinstance(value, Mapping):
        return {key: _as_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | set | frozenset):
        return tuple(map(_as_plain, value))
    # A number of numpy, which is not imported for this.
    is_number = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_number else value


def _class_variable_type(cls: type, name: str) -> Any:
    """The type of a class variable that a base class in fedwca declares; None if none does."""
    for base in cls.__mro__[1:]:
        annotation = str(inspect.get_annotations(base).get(name, ""))
        if annotation.startswith("ClassVar[") and base.__module__.startswith("fedwca."):
            stub = type("_", (), {"__annotations__": {name: annotation}, "__module__": base.__module__})
            with suppress(NameError):  # a type that is imported for type checking alone
                return get_args(get_type_hints(stub)[name])[0]
    return None


def warn_of_misspelt_member(cls: type[UserValues]) -> None:
    """Warn, at the place of a plugin's class, of what `describe_misspelt_member` finds in it."""
    if problem := describe_misspelt_member(cls):
        lines = [value.__code__.co_firstlineno for value in vars(cls).values() if inspect.isfunction(value)]
        file = getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__
        warnings.warn_explicit(problem, UserWarning, file, min(lines, default=1))


def describe_misspelt_member(cls: type[UserValues]) -> str:
    """What a plugin's class defines under nearly the name of a method that keeps its default; empty: nothing.

    >>> from fedwca.registry import Component
    >>> class Mine(Component):
    ...     def positional_value(self): ...
    >>> Mine.__module__ = "mine"
    >>> describe_misspelt_member(Mine)
    "Mine.positional_value is nearly positional_values, whose default runs; rename it, or begin a helper's name with _"
    """
    bases = [base for base in cls.__mro__[1:] if issubclass(base, UserValues)]
    classes = [base for base in cls.__mro__ if not base.__module__.startswith(("fedwca.", "pydantic.", "builtins"))]
    if cls not in classes:
        return ""
    methods: set[str] = set().union(*map(_public_methods, bases))
    overridden: set[str] = set().union(*map(vars, classes))
    for name in sorted(_public_methods(cls) - set().union(*map(vars, bases))):
        for close in difflib.get_close_matches(name, sorted(methods), 1, 0.83):
            if close not in overridden and _are_spelt_alike(name, close):
                return (
                    f"{cls.__name__}.{name} is nearly {close}, whose default runs; rename it, or begin a helper's name "
                    "with _"
                )
    return ""


def _are_spelt_alike(name: str, other: str) -> bool:
    """Whether names have as many words, each nearly the other's: not so load_published and read_published."""
    words, other_words = name.split("_"), other.split("_")
    alike = (difflib.get_close_matches(*pair, 1, 0.83) for pair in zip(words, ([x] for x in other_words), strict=False))
    return len(words) == len(other_words) and all(alike)


def _public_methods(cls: type) -> set[str]:
    """Names of the methods and properties that a class itself defines, without those that begin with _."""
    kinds = (FunctionType, property, classmethod, staticmethod)
    return {name for name, value in vars(cls).items() if isinstance(value, kinds) and not name.startswith("_")}


def describe_load_error(error: Exception) -> str:
    """Why a class cannot be loaded, with advice where pydantic's own speaks of its internals."""
    reason = first_line(error)
    missing = re.search("`(.+)`\\. All model fields", reason) if isinstance(error, PydanticUserError) else None
    if missing is None:
        return reason
    return (
        f"`{missing[1]}` has no type annotation, as a field needs; of what the base class defines, a property is "
        "written with @property, and other names may be misspelt"
    )
