"""Registry of components by name: one file, one class, one name; other packages add theirs by entry point.

``fedwca/aggregators/wca.py`` ⇔ ``@register("wca")`` ⇔ ``--aggregator wca`` ⇔ entry point ``wca`` in the group
``fedwca.aggregators``. Names come from listing the folder, so nothing heavy is imported before it is used.
"""

from __future__ import annotations

import fnmatch
import importlib
import pkgutil
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError

from fedwca.component import Component
from fedwca.component_class_checks import describe_load_error
from fedwca.describe_problems import describe_problems, describe_unknown
from fedwca.errors import InvalidConfig, UnknownComponent, UsageError

__all__ = ["Component", "Registry", "canonical_name"]

T = TypeVar("T", bound=Component)
D = TypeVar("D", bound=Component)


def canonical_name(name: str) -> str:
    """A component name in its canonical form, snake_case; the command line also takes dashes and capitals.

    >>> canonical_name("One-Hot")
    'one_hot'
    """
    return name.strip().lower().replace("-", "_")


@lru_cache
def _installed(group: str, search_path: tuple[str, ...]) -> EntryPoints:
    """Entry points of a group, cached by ``sys.path``: a search takes 10 ms, and a run needs a dozen components."""
    return entry_points(group=group)


@cache
def _module_names(package: str) -> frozenset[str]:
    """Names of a package's public modules, read from its folder once: a run asks for names by the hundred."""
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return frozenset(module.name for module in modules if not module.name.startswith("_"))


def _suggest_instance(value: object) -> str:
    """The end of an error message about a value that is a class; empty if it is none."""
    return f"; {value.__name__}() would be an instance" if isinstance(value, type) else ""


def _has(cls: type, method: str) -> bool:
    """Whether a class, not its metaclass, has a method of that name that is not abstract."""
    attribute = next((vars(base)[method] for base in cls.__mro__ if method in vars(base)), None)
    return callable(attribute) and not getattr(attribute, "__isabstractmethod__", False)


class Registry(Generic[T]):
    """All components of one kind.

    Args:
        kind: what messages call a component, for example ``"aggregator"``.
        package: the package whose files are the components, and the entry-point group.
        requires: methods that every component must have; the error for a plugin without them names those it lacks.
        states: class attributes that every component must set, likewise.
        base: dotted name of the class that every component derives from, which is not imported for this; likewise.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        requires: tuple[str, ...] = (),
        states: tuple[str, ...] = (),
        base: str = "fedwca.component.Component",
    ) -> None:
        self.kind, self.package, self.requires, self.states, self.base = kind, package, requires, states, base
        self._classes: dict[str, type[T]] = {}
        self._checked: set[str] = set()

    def __call__(self, name: str) -> Callable[[type[D]], type[D]]:
        """Class decorator that registers the class under ``name``.

        Raises:
            UsageError: another class already has that name, it has other signs than letters, digits, _ and -, or the
                class lacks a method or the base class.
        """

        def add(cls: type[D]) -> type[D]:
            self._add(name, cls)
            return cls

        return add

    def _add(self, name: str, cls: type[Any]) -> None:
        name = canonical_name(name)
        if not isinstance(cls, type):
            raise UsageError(f"{self.kind} {name!r} is not a class but {cls!r}")
        if not re.fullmatch("[a-z0-9_]+", name):  # a spec or a --set could not name it
            raise UsageError(f"{self.kind} {name!r} ({cls.__qualname__}): a name is of letters a-z, digits, _ and -")
        missing = [method for method in self.requires if not _has(cls, method)]
        missing += [attribute for attribute in self.states if not hasattr(cls, attribute)]
        is_derived = self.base in {f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__}
        if missing or not is_derived:
            lacks = ", ".join(missing) if is_derived else f"the base class {self.base}"
            raise UsageError(f"{self.kind} {name!r} ({cls.__module__}.{cls.__qualname__}) lacks {lacks}")
        own_module = f"{self.package}.{name}"
        if name in _module_names(self.package) and cls.__module__ != own_module:
            raise UsageError(f"{self.kind} {name!r} is already in {own_module}; take another name")
        registered = self._classes.setdefault(name, cast(type[T], cls))
        if (registered.__module__, registered.__qualname__) != (cls.__module__, cls.__qualname__):
            raise UsageError(f"{self.kind} {name!r} is already {registered.__module__}.{registered.__qualname__}")
        self._classes[name] = cast(type[T], cls)
        for attribute in ("label", "paper"):  # what a registered class is called and published as, its subclass is not
            owner = next(base for base in cls.__mro__ if attribute in vars(base))
            if owner is not cls and (vars(owner).get("name") or self._entry_names(owner)):
                setattr(cls, attribute, "")
        cls.name = name

    def _plugins(self) -> dict[str, EntryPoint]:
        return {canonical_name(point.name): point for point in _installed(self.package, tuple(sys.path))}

    def _entry_names(self, cls: type) -> list[str]:
        """Names of the entry points of a class, which has no name of its own before it is loaded by one."""
        value = f"{cls.__module__}:{cls.__qualname__}"
        return [name for name, point in self._plugins().items() if point.value.replace(" ", "") == value]

    def _check_is_one(self, name: str) -> None:
        """Refuse a name that several packages register, since nobody could see which of them a run uses.

        Raises:
            UsageError: several do; the message names them.
        """
        points = _installed(self.package, tuple(sys.path))
        matches = [point for point in points if canonical_name(point.name) == name]
        owners = sorted({f"{point.dist.name if point.dist else 'a plugin'} ({point.value})" for point in matches})
        owners = [*(["fedwca"] if name in _module_names(self.package) else []), *owners]
        if len(owners) > 1:
            raise UsageError(
                f"{self.kind} {name!r} is of {' and of '.join(owners)}; uninstall one, or give its entry point another "
                "name"
            )

    def names(self) -> list[str]:
        """Every known name, sorted; imports no component."""
        return sorted(_module_names(self.package) | set(self._plugins()) | set(self._classes))

    def get(self, name: str) -> type[T]:
        """The class called ``name``, imported when first asked for.

        Raises:
            UnknownComponent: no component of this kind has that name.
            UsageError: a plugin could not be loaded, lacks a method, or has the name of another component.
        """
        name = canonical_name(name)
        if name not in self._checked:
            self._check_is_one(name)
            self._checked.add(name)
        if name not in self._classes:
            if name in _module_names(self.package):
                importlib.import_module(f"{self.package}.{name}")
            elif point := self._plugins().get(name):
                self._add(name, self._load(point))
            else:
                raise UnknownComponent(self._describe_unknown(name))
        return self._classes[name]

    def loadable(self) -> list[type[T]]:
        """The classes of all names but plugins that `get` refuses, which matter only to those who ask for them."""
        classes = []
        for name in self.names():
            with suppress(UsageError):
                classes.append(self.get(name))
        return classes

    def _describe_unknown(self, name: str) -> str:
        """The error sentence for a name that is not registered, or for several in one."""
        parts = [part.strip() for part in re.split("[+,]", name)]
        if len(parts) > 1 and set(parts) <= set(self.names()):
            return f"no {self.kind} {name!r}: give each by itself, {' and '.join(parts)}"
        return describe_unknown(self.kind, name, self.names(), "; if a plugin has it, install that")

    def _load(self, point: EntryPoint) -> type[Any]:
        try:
            with redirect_stdout(sys.stderr):  # what its file prints must not be part of --json
                component = point.load()
            if isinstance(component, type) and issubclass(component, BaseModel):
                component.model_rebuild()  # reports an unresolvable annotation now, not at first use
            return cast(type[Any], component)
        except (Exception, SystemExit) as error:
            source, reason = point.dist.name if point.dist else point.value, describe_load_error(error)
            raise UsageError(f"{self.kind} {point.name!r} from {source} could not be loaded: {reason}") from error

    def parse(self, spec: str | dict[str, Any] | T) -> tuple[str, dict[str, Any]]:
        """The name and the given fields of a component's specification.

        It is ``"wca"``, ``"wca:ta=0.05,tb=1"``, ``{"name": "wca", …}`` or an instance; also ``"timm:resnet18"`` where
        the component has a `Component.positional_field` field.
        """
        if isinstance(spec, Component):
            return self._name_of(type(spec)), {field: getattr(spec, field) for field in spec.model_fields_set}
        if isinstance(spec, dict):
            fields = dict(spec)
            name = fields.pop("name", None)
            if not isinstance(name, str):
                raise InvalidConfig(f"{self.kind}: a table needs a name, such as {{name = {self.names()[0]!r}}}")
            return canonical_name(name), fields
        if not isinstance(spec, str):
            raise InvalidConfig(f"{self.kind}: needs a name or a table, not {spec!r}{_suggest_instance(spec)}")
        name, colon, tail = spec.partition(":")
        if not name.strip():
            raise InvalidConfig(f"{self.kind} {spec!r}: needs a name, such as {self.names()[0]!r}; or leave it out")
        fields = {}
        for pair in tail.split(",") if colon else ():
            key, equals, value = pair.partition("=")
            if not (equals or fields) and (field := self._positional_field(name)):
                key, equals, value = field, "=", pair
            key, value = key.strip().replace("-", "_"), value.strip()
            if not (equals and key and value):
                raise InvalidConfig(f"{self.kind} {spec!r}: {pair!r} is not of the form field=value")
            if key in fields:
                raise InvalidConfig(f"{self.kind} {spec!r}: {key!r} is given twice")
            fields[key] = value
        return canonical_name(name), fields

    def _name_of(self, cls: type[Component]) -> str:
        """The registered name of a class; a plugin that was not loaded by name yet has that of its entry point."""
        if not vars(cls).get("name"):  # a name that it inherits is another class's
            names = self._entry_names(cls)
            if not names:
                raise InvalidConfig(
                    f"{self.kind} {cls.__qualname__} has no name; put @register(NAME) above the class, after "
                    f"`from {self.package} import register`"
                )
            self.get(names[0])
        return cls.name

    def _check_is_registered(self, cls: type[Component]) -> None:
        """Refuse a class in whose place its name would bring back another, as when a run is resumed.

        Raises:
            UnknownComponent, InvalidConfig: no class, or another one, has its name; or it has none.
        """
        registered = self.get(self._name_of(cls))
        if (registered.__module__, registered.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidConfig(
                f"{self.kind} {cls.name!r} is {registered.__module__}.{registered.__qualname__}, not "
                f"{cls.__qualname__}; put @register with another name above the class"
            )

    def _positional_field(self, name: str) -> str:
        name = canonical_name(name)
        return self.get(name).positional_field if name in self.names() else ""

    def matching(self, pattern: str) -> list[str]:
        """Known names that match a pattern such as ``wca*``; after a colon, values of the component's positional field.

        Raises:
            UsageError: the values of that field cannot be listed.
        """
        name, colon, values = pattern.partition(":")
        if colon and self._positional_field(name):
            cls = self.get(name)
            return [f"{cls.name}:{value}" for value in cls.positional_values(canonical_name(values))]
        return fnmatch.filter(self.names(), canonical_name(pattern))

    def build(self, spec: str | dict[str, Any] | T) -> T:
        """The component that ``spec`` describes (see `parse`).

        Raises:
            UnknownComponent: no component of this kind has that name.
            InvalidConfig: a field is unknown or out of its bounds, or an instance's class is not registered.
        """
        if isinstance(spec, Component):
            self._check_is_registered(type(spec))
            return spec
        name, fields = self.parse(spec)
        cls = self.get(name)
        try:
            return cls(**fields)
        except ValidationError as error:
            raise InvalidConfig(describe_problems(error, f"{self.kind} {name}.", cls)) from error

    @staticmethod
    def dump(component: Component) -> dict[str, Any]:
        """The component as plain values, from which `build` makes an equal one."""
        return {"name": component.name, **component.model_dump(mode="json")}
