"""The base class of all components, which users name, and the hash of a plugin's code."""

from __future__ import annotations

import hashlib
import inspect
import sys
import uuid
from typing import Any, ClassVar

from pydantic import ConfigDict, ValidationError

from fedwca._deprecated import MEMBERS, describe_old_member
from fedwca.component_class_checks import (
    describe_wrong_class_variable,
    describe_wrong_signature,
    warn_of_misspelt_member,
)
from fedwca.errors import UsageError
from fedwca.user_values import UserValues


class Component(UserValues):
    """A frozen value whose fields are its hyper-parameters; it holds no state."""

    # A default that its own field refuses would be recorded in a run that could then not be resumed.
    model_config = ConfigDict(validate_default=True)

    name: ClassVar[str] = ""
    """The name it is registered under; set by the registry."""
    label: ClassVar[str] = ""
    """How tables call it; empty: the name."""
    paper: ClassVar[str] = ""
    """Paper and equation it comes from."""
    positional_field: ClassVar[str] = ""
    """The field that a first word without ``=`` sets, as in timm:resnet18; empty: there is none."""
    _code: ClassVar[str] = ""
    """Hash of the file that defines a plugin's class, as it was when the class was made; see `code_digest`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse old names, reserved fields, class variables of a wrong type and methods that take other parameters.

        Raises:
            UsageError: there is such a name, field, value or method; says what would be right.

        Warns:
            UserWarning: see `warn_of_misspelt_member`.
        """
        # pydantic itself refuses attributes without annotation that it does not know, and cannot name the new ones.
        cls.__class_vars__ |= MEMBERS.get(cls.__name__, {}).keys()
        if problem := describe_old_member(cls) or describe_wrong_class_variable(cls) or describe_wrong_signature(cls):
            raise UsageError(problem)
        if reserved := sorted({"kind", "name"} & cls.model_fields.keys()):
            raise UsageError(f"{cls.__name__}.{reserved[0]} is a field, and results name a part so; call it otherwise")
        warn_of_misspelt_member(cls)
        cls._code = "" if cls.__module__.startswith("fedwca.") else _hash_file(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change a field, or to keep anything else.

        Raises:
            UsageError: always, except for private attributes that the class declares.
        """
        try:
            if name.startswith("_") and not name.startswith("__") and name not in self.__private_attributes__:
                raise AttributeError(name)
            super().__setattr__(name, value)
        except (ValidationError, AttributeError) as error:
            raise UsageError(
                f"{type(self).__name__}.{name} cannot be set: components are frozen and keep nothing; what an "
                "aggregator must remember belongs in the state that next_state returns"
            ) from error

    @classmethod
    def positional_values(cls, pattern: str) -> list[str]:
        """Known values of that field that match a pattern such as ``vit*``."""
        return []


def code_digest(cls: type[Component]) -> dict[str, str]:
    """``{"code": hash}`` of the files that define a plugin's class and its bases; empty for a class of fedwca.

    A cached result of a component is recognised by its name, its fields and this. Files that these import do not count,
    nor what became of the files after the classes were made.
    """
    code = "".join(base._code for base in cls.__mro__ if issubclass(base, Component))
    return {"code": hashlib.sha256(code.encode()).hexdigest()[:16]} if code else {}


def _hash_file(cls: type) -> str:
    """Hash of the file that defines a class; of one that was typed in, a text that no other class has.

    Nothing else is known of what was typed in, so a result that is cached for such a class must not be another's.
    """
    module = sys.modules.get(cls.__module__)
    try:
        code = inspect.getsource(module).encode()  # type: ignore[arg-type]
    except (TypeError, OSError):  # not there, typed in or compiled
        try:
            code = module.__spec__.loader.get_data(module.__file__)  # type: ignore[union-attr]
        except (AttributeError, OSError):
            return uuid.uuid4().hex
    return hashlib.sha256(code).hexdigest()
