"""Values to try for the fields of a run, and what they are judged by."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from math import inf
from typing import Any

from fedwca.config.compose_methods import method_parts
from fedwca.config.resolve_config import RunPlan
from fedwca.config.set_options import TABLES
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name


@dataclass(frozen=True)
class Options:
    """Some values, each tried."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Any value between two ends."""

    key: str
    low: float
    high: float
    log: bool = False
    """Whether orders of magnitude are drawn alike."""
    whole: bool = False
    """Whether only whole numbers are drawn."""


def parse_space(text: str) -> Options | Range:
    """``key=0.001..0.1:log`` or ``key=0.01,0.1``; keys as in ``--set``.

    >>> parse_space("aggregator.ta=0.001..0.1:log")
    Range(key='aggregator.ta', low=0.001, high=0.1, log=True, whole=False)
    >>> parse_space("training.epochs=1,5")
    Options(key='training.epochs', values=(1, 5))

    Raises:
        UsageError: neither of these.
    """
    key, equals, tail = text.partition("=")
    key, tail = key.strip(), tail.strip()
    if not equals or "." not in key or not tail:
        raise UsageError(f"--param {text}: not of the form kind.field=0.001..0.1:log or kind.field=0.01,0.1")
    ends, _, scale = tail.partition(":")
    if ".." not in ends:
        values = [value.strip() for value in tail.split(",")]
        if not all(values):
            raise UsageError(f"--param {text}: a value is empty; it needs some between commas, as in 0.01,0.1")
        return Options(key, tuple(dict.fromkeys(map(_value, values))))
    low, high = (_value(end.strip()) for end in ends.split("..", 1))
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not -inf < low < high < inf:
        raise UsageError(f"--param {text}: needs two numbers, the smaller first, as in 0.001..0.1")
    if scale not in ("", "log") or (scale == "log" and low <= 0):
        raise UsageError(f"--param {text}: the scale is 'log' or left out, and log needs numbers above 0")
    return Range(key, low, high, scale == "log", isinstance(low, int) and isinstance(high, int))


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def grids() -> dict[str, dict[str, Any]]:
    """The paper's grids by name: ``about``, ``params``, and the ``method`` they belong to if to one."""
    return tomllib.loads((resources.files("fedwca.search") / "sweeps.toml").read_text(encoding="utf-8"))


def grid(name: str) -> tuple[str | None, list[Options]]:
    """A grid by name, with its method.

    Raises:
        UsageError: there is no such grid.
    """
    if canonical_name(name) not in grids():
        raise UsageError(describe_unknown("grid", name, grids()))
    found = grids()[canonical_name(name)]
    return found.get("method"), [Options(key, tuple(values)) for key, values in found["params"].items()]


def resolve_grid(key: str, plan: RunPlan) -> str:
    """A key with the name of the component in it: ``aggregator.ta`` becomes ``aggregator.wca.ta``.

    Raises:
        UsageError: the method has no such component or field, or several of them.
    """
    head, *rest = [canonical_name(part) for part in key.split(".")]
    if head in TABLES or len(rest) != 1:
        return ".".join([head, *rest])
    (method, _) = plan.methods[0]
    own = {kind: getattr(plan.config, kind) for kind in ("dataset", "model", "partition")}
    having = [part.name for kind, part in method_parts(method) if kind == head and rest[0] in type(part).model_fields]
    having += [own[head]] if head in own else []
    if not having:
        raise UsageError(f"--param {key}: no {head} of {method.label} has a field {rest[0]!r}")
    if len(having) > 1:
        raise UsageError(f"--param {key}: several have that field; say {head}.{having[0]}.{rest[0]}")
    return f"{head}.{having[0]}.{rest[0]}"
