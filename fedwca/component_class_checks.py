"""What is wrong with the class of a plugin, found when the class is made."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import PurePath
from traceback import walk_tb
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


def describe_wrong_signature(cls: type[UserValues]) -> str | None:
    """What is wrong with a plugin's method that overrides one of fedwca; None if all can be called as those are.

    Parameters may have other names, and there may be more that have defaults.

    >>> from fedwca.core.interfaces import PseudoLabeler
    >>> class Mine(PseudoLabeler):
    ...     def __call__(self, predictions): ...
    >>> Mine.__module__ = "mine"
    >>> describe_wrong_signature(Mine)
    'Mine.__call__ takes (self, predictions); right is (self, predictions, draws)'
    """
    if cls.__module__.startswith("fedwca."):  # checked by mypy
        return None
    bases = [base for base in cls.__mro__ if base.__module__.startswith("fedwca.")]
    for name in sorted({"__call__"}.union(*map(_public_methods, bases))):
        # The method itself may be that of a mixin, which is no component.
        own, overridden = (
            next((vars(x)[name] for x in classes if name in vars(x)), None) for classes in (cls.__mro__, bases)
        )
        if own is not overridden and (problem := _describe_wrong_override(own, overridden)):
            return f"{cls.__name__}.{name} {problem}"
    return None


def _describe_wrong_override(own: Any, overridden: Any) -> str | None:
    """What is wrong with a method in place of another, after its name; None if nothing, or if one is no function."""
    first = {FunctionType: ["self"], classmethod: ["cls"], staticmethod: []}
    if type(own) in first and isinstance(overridden, property):  # an attribute that would always count as true
        return "is a method; right is a property, so write @property above it"
    if type(own) not in first or type(overridden) not in first:
        return None
    # A wrapper made by functools.wraps may itself give some of the arguments, so the function inside does not count.
    taken = inspect.signature(getattr(own, "__func__", own), follow_wrapped=False)
    given = list(inspect.signature(getattr(overridden, "__func__", overridden)).parameters.values())[1:]
    right = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in first[type(own)]] + given
    try:
        taken.bind(*right)
        taken.bind(*(parameter for parameter in right if parameter.default is parameter.empty))
    except TypeError:
        return f"takes {_without_annotations(taken.parameters.values())}; right is {_without_annotations(right)}"
    return None


def _without_annotations(parameters: Iterable[inspect.Parameter]) -> str:
    """Parameters in brackets, as in a definition."""
    return str(inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters]))


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


def describe_load_error(error: BaseException) -> str:
    """Why a class cannot be loaded, with the file and line, and advice where pydantic's own speaks of its internals."""
    reason = first_line(error)
    if isinstance(error, SystemExit):
        reason = "its file ends Python when it is imported"
    elif isinstance(error, ImportError) and "relative import" in reason:
        reason += "; right is the other file's own name, without dots, where it is not part of a package"
    elif isinstance(error, PydanticSchemaGenerationError) and (unknown := re.search("schema for (.+?)\\. Set", reason)):
        reason = f"a field has the type {unknown[1]}; right is one whose values JSON can hold, such as float"
    elif isinstance(error, PydanticUserError) and (missing := re.search("`(.+)`\\. All model fields", reason)):
        reason = (
            f"`{missing[1]}` has no type annotation, as a field needs; of what the base class defines, a property is "
            "written with @property, and other names may be misspelt"
        )
    lines = [(frame, line) for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    if isinstance(error, SyntaxError) or not lines:  # the sentence of the former has the place
        return reason
    frame, line = lines[-1]
    return f"{reason} ({PurePath(frame.f_code.co_filename).name}:{line})"
