"""Values to try for the fields of a run."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from math import inf
from typing import Any

from fedwca.config.describe_method import method_parts
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import TABLES
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name


@dataclass(frozen=True)
class Options:
    """A list of values, each of which is tried."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """All values between two ends, both included."""

    key: str
    low: float
    high: float
    log: bool = False
    """Whether values are drawn uniformly on a log scale."""
    whole: bool = False
    """Whether only whole numbers are drawn."""


def parse_space(text: str) -> Options | Range:
    """Parse ``key=0.001..0.1:log`` or ``key=0.01,0.1``; keys as in ``--set``.

    >>> parse_space("aggregator.ta=0.001..0.1:log")
    Range(key='aggregator.ta', low=0.001, high=0.1, log=True, whole=False)
    >>> parse_space("training.epochs=1,5")
    Options(key='training.epochs', values=(1, 5))
    >>> parse_space("model.weights=../a.pth,../b.pth").values
    ('../a.pth', '../b.pth')

    Raises:
        UsageError: the text has neither form.
    """
    key, equals, tail = text.partition("=")
    key, tail = key.strip(), tail.strip()
    if not equals or "." not in key or not tail:
        raise UsageError(f"--param {text}: not of the form kind.field=0.001..0.1:log or kind.field=0.01,0.1")
    ends, _, scale = tail.partition(":")
    if ".." not in ends or "," in tail:
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
    """The papers' grids by name: ``about``, ``params``, and ``method`` if the grid belongs to one method."""
    return tomllib.loads((resources.files("fedwca.search") / "sweeps.toml").read_text(encoding="utf-8"))


def grid(name: str) -> tuple[str | None, list[Options]]:
    """A grid by name, with its method.

    Raises:
        UsageError: there is no such grid.
    """
    if canonical_name(name) not in grids():
        raise UsageError(describe_unknown("grid", name, grids()))
    entry = grids()[canonical_name(name)]
    return entry.get("method"), [Options(key, tuple(values)) for key, values in entry["params"].items()]


def resolve_grid(key: str, plan: RunPlan) -> str:
    """A key with the component's name filled in: ``aggregator.ta`` becomes ``aggregator.wca.ta``.

    Raises:
        UsageError: the method has no such component or field, or several of them.
    """
    head, *name_parts = [canonical_name(part) for part in key.split(".")]
    if head in TABLES or len(name_parts) != 1:
        return ".".join([head, *name_parts])
    (method, _) = plan.methods[0]
    run_components = {kind: getattr(plan.config, kind) for kind in ("dataset", "model", "partition")}
    components = [x.name for kind, x in method_parts(method) if kind == head and name_parts[0] in type(x).model_fields]
    components += [run_components[head]] if head in run_components else []
    if not components:
        fields = {field for kind, x in method_parts(method) if kind == head for field in type(x).model_fields}
        if not fields:
            others = [
                f"{kind}.{x.name}.{name_parts[0]}"
                for kind, x in method_parts(method)
                if name_parts[0] in type(x).model_fields
            ]
            hint = f"; did you mean {' or '.join(others)}?" if others else ""
            raise UsageError(f"--param {key}: {method.label} has no {head} with fields{hint}")
        unknown = describe_unknown(f"field of {method.label}'s {head}", name_parts[0], sorted(fields))
        raise UsageError(f"--param {key}: {unknown}")
    if len(components) > 1:
        raise UsageError(f"--param {key}: several have that field; say {head}.{components[0]}.{name_parts[0]}")
    return f"{head}.{components[0]}.{name_parts[0]}"
