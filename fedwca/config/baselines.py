"""Baselines: the published methods that files in ``baselines/`` describe, and variants of them."""

from __future__ import annotations

import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fedwca.config.component_registries import registry_of
from fedwca.config.method_spec import MethodSpec
from fedwca.config.run_config import Components, RunConfig, merge, spell_out
from fedwca.core.files import toml_names
from fedwca.errors import InvalidConfig, UnknownComponent
from fedwca.registry import canonical_name, describe_problems, describe_unknown


def baseline_folder() -> Traversable:
    """``baselines/``: inside an installed package, or beside the package in a checkout."""
    packaged = resources.files("fedwca") / "_baselines"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "baselines"


def baseline_names() -> list[str]:
    """Names of all baselines, sorted."""
    return toml_names(baseline_folder())


class Baseline(BaseModel):
    """One published method: its exact composition, and what in it is our reading."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    label: str
    """How tables call it."""
    paper: str
    """Where it is published."""
    reading: str
    """What the publication leaves open and how it is decided here."""
    aggregator: str
    pseudo_labeler: str
    objectives: tuple[str, ...]
    clusterer: str | None = None
    components: Components = {}
    """Fields that belong to the method; every other field is the run's."""
    rounds: NonNegativeInt | None = None
    """At most so many; 0: the source model as it is; None: the run's."""


def baseline(name: str) -> Baseline:
    """A baseline by name.

    Raises:
        UnknownComponent: there is no such file.
    """
    name = canonical_name(name)
    if name not in baseline_names():
        raise UnknownComponent(describe_unknown("baseline", name, baseline_names()))
    try:
        return Baseline(**spell_out(tomllib.loads((baseline_folder() / f"{name}.toml").read_text())))
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error, f"baseline {name}: ")) from error


def baseline_for(spec: MethodSpec) -> Baseline:
    """The baseline that a method's word stands for: its head with the changes, or default parts around an aggregator.

    Raises:
        UnknownComponent: the head is neither a baseline nor an aggregator.
    """
    if spec.head in baseline_names():
        found = baseline(spec.head)
    elif spec.head in registry_of("aggregator").names():
        found = Baseline(
            label=registry_of("aggregator").get(spec.head).label or spec.head,
            paper="",
            reading="",
            aggregator=spec.head,
            pseudo_labeler=RunConfig.model_fields["pseudo_labeler"].default,
            objectives=RunConfig.model_fields["objectives"].default,
        )
    elif spec.plain:
        return baseline(spec.head)
    else:
        raise UnknownComponent(
            describe_unknown("method", spec.head, [*baseline_names(), *registry_of("aggregator").names()])
        )
    if spec.plain:
        return found
    changes: dict[str, Any] = {part: specs[0] for part, specs in spec.changes.items() if part != "objectives"}
    if "objectives" in spec.changes:
        changes["objectives"] = spec.changes["objectives"]
    if spec.fields and "aggregator" not in changes:
        changes["aggregator"] = f"{found.aggregator}:{spec.fields}"
    given = spell_out(changes)
    # A component that stands in for the head's comes without the fields that the head's file states.
    replaced = {"objective" if part == "objectives" else part for part in spec.changes}
    stated = {kind: fields for kind, fields in found.components.items() if kind not in replaced}
    fields = merge(stated, given.pop("components", {}))
    shown = [spec.fields, *(f"{part}={'+'.join(specs)}" for part, specs in spec.changes.items())]
    label = spec.label or f"{found.label} ({'; '.join(part for part in shown if part)})"
    return found.model_copy(update={**given, "components": fields, "label": label})
