"""Checks that hold for every value a user sets, whatever it belongs to."""

from __future__ import annotations

from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

LARGEST = 2**31 - 1
"""The largest whole number that a field takes: that of int32; libraries below may treat larger ones differently."""
LONGEST = 4096
"""Characters in the longest text that a field takes, such as a path."""


class UserValues(BaseModel):
    """Frozen values that a user sets: numbers are finite and not too large, text is neither empty nor too long."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_said(cls, value: object, info: ValidationInfo) -> object:
        """Refuse text that is too long, or empty where that is not the default."""
        field = cls.model_fields[str(info.field_name)]
        default = field.default
        if isinstance(value, bool) and not _takes_bool(field.annotation):
            raise ValueError("is true or false, which is no value here")
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and not text.strip() and default != "":
                raise ValueError("is empty; leave it out for the default")
            if isinstance(text, str) and len(text) > LONGEST:
                raise ValueError(f"has {len(text)} letters; {LONGEST} are the most")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _is_an_option(cls, value: object, info: ValidationInfo) -> object:
        """Read text as the option that it spells: 1 for "1" where 1 is one, None for "none" where no number is one."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        options = get_args(annotation) if get_origin(annotation) is Literal else ()
        if value == "none" and NoneType in get_args(annotation) and _takes_number(annotation):
            return None
        return next((option for option in options if value == str(option)), value)

    @field_validator("*")
    @classmethod
    def _can_be_counted_with(cls, value: object) -> object:
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError(f"is too large; {LARGEST} is the most")
        return value


def _takes_bool(annotation: Any) -> bool:
    """Whether a type takes true and false.

    >>> _takes_bool(bool | None), _takes_bool(Any), _takes_bool(int | None)
    (True, True, False)
    """
    return annotation in (bool, Any) or any(map(_takes_bool, get_args(annotation)))


def _takes_number(annotation: Any) -> bool:
    """Whether a type takes numbers.

    >>> _takes_number(float | None), _takes_number(str | None)
    (True, False)
    """
    return annotation in (int, float) or any(map(_takes_number, get_args(annotation)))


def split_numbers(value: Any) -> Any:
    """A number, or several written as ``0.1+0.5``, as a list.

    >>> split_numbers("0.1+0.5"), split_numbers(0.1)
    (['0.1', '0.5'], [0.1])
    """
    if isinstance(value, str):
        return [part.strip() for part in value.split("+")]
    return [value] if isinstance(value, int | float) else value
