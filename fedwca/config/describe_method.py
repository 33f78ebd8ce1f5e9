"""A method as plain values: its components and their fields, for results and comparisons."""

from __future__ import annotations

from typing import Any

from fedwca.component import Component
from fedwca.federated.method import Method


def method_parts(method: Method) -> list[tuple[str, Component]]:
    """A method's components with their kinds."""
    parts: list[tuple[str, Component]] = [
        ("aggregator", method.aggregator),
        ("pseudo_labeler", method.pseudo_labeler),
        *(("objective", objective) for objective in dict.fromkeys((*method.objectives, *method.finish))),
    ]
    optional_parts: list[tuple[str, Component | None]] = [
        ("clusterer", method.clusterer),
        ("central", method.central),
        ("adaptation", method.adaptation),
    ]
    return [*((kind, part) for kind, part in optional_parts if part is not None), *parts]


def component_values(method: Method) -> list[dict[str, Any]]:
    """A method's components as plain values, for results."""
    return [{"kind": kind, "name": part.name, **part.model_dump(mode="json")} for kind, part in method_parts(method)]


def describe_method(method: Method) -> dict[str, Any]:
    """A method as plain values: its components and, if present, its last phase and its own training settings."""
    description: dict[str, Any] = {"components": component_values(method)}
    if method.finish:
        description["finish"] = [objective.name for objective in method.finish]
    if set(method.finish) & set(method.objectives):  # the components do not tell that they are in both
        description["objectives"] = [objective.name for objective in method.objectives]
    for name in ("training", "finish_training"):
        if (values := getattr(method, name)) is not None:
            description[name] = values.model_dump(mode="json")
    return description
