"""Methods from names: the composed one, and the baselines that files in ``baselines/`` describe."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fedwca.config.method_spec import MethodSpec, parse_method
from fedwca.config.paths import baseline_folder, baseline_names
from fedwca.config.registries import registry_of
from fedwca.config.run_config import Components, RunConfig, merge, spell_out
from fedwca.errors import InvalidConfig, UnknownComponent, UsageError
from fedwca.federated.method import Method
from fedwca.registry import Component, canonical, problems, unknown


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
    name = canonical(name)
    if name not in baseline_names():
        raise UnknownComponent(unknown("baseline", name, baseline_names()))
    try:
        return Baseline(**spell_out(tomllib.loads((baseline_folder() / f"{name}.toml").read_text())))
    except ValidationError as error:
        raise InvalidConfig(problems(error, f"baseline {name}: ")) from error


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
        raise UnknownComponent(unknown("method", spec.head, [*baseline_names(), *registry_of("aggregator").names()]))
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


def component(kind: str, name: str, fields: Components) -> Any:
    """The component of a kind and name with the fields given for it."""
    return registry_of(kind).build({"name": name, **fields.get(kind, {}).get(name, {})})


def assemble(
    name: str, label: str | None, parts: RunConfig | Baseline, fields: Components, clusterer: str | None
) -> Method:
    """A method from names of components and their fields.

    Raises:
        UsageError: the parts do not fit each other.
    """
    aggregator = component("aggregator", parts.aggregator, fields)
    grouping = aggregator.grouping
    if clusterer and not grouping.needs_clusterer:
        raise UsageError(
            f"clusterer {clusterer!r} is not used: aggregator {aggregator.name!r} {grouping.instead}; "
            "leave --clusterer out, or take one_hot or wca"
        )
    found = component("clusterer", clusterer or "finch", fields) if grouping.needs_clusterer else None
    shown = label or name
    if found is not None and found.oracle:
        shown = f"{shown}, {found.label or found.name} (ORACLE)"
    labeler = component("pseudo_labeler", parts.pseudo_labeler, fields)
    objectives = tuple(component("objective", objective, fields) for objective in parts.objectives)
    asked = [(labeler, labeler.models), *((o, (*o.anchors, *o.teachers)) for o in objectives)]
    for part, models in asked:
        if lacking := [model for model in models if model not in aggregator.references]:
            raise UsageError(
                f"{part.name!r} reads the model {lacking[0]!r}, which aggregator {aggregator.name!r} does not give; it "
                f"gives {', '.join(aggregator.references)}"
            )
    return Method(name, shown, aggregator, labeler, objectives, found)


def compose(config: RunConfig) -> list[tuple[Method, int]]:
    """All methods of a run with their rounds, the composed one last if there is one.

    A baseline takes from the run the fields of components both use, so that a comparison stands on equal terms; what
    its own file states wins.

    Raises:
        UsageError: parts do not fit, two methods have one name, or a field is given for a component nobody uses.
    """
    methods = []
    for text in config.baselines:
        spec = parse_method(text)
        found = baseline_for(spec)
        fields = merge(config.components, found.components)
        clusterer = found.clusterer or None
        methods.append((assemble(spec.name, found.label, found, fields, clusterer), found.rounds))
    names = [method.name for method, _ in methods]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two methods are called {twice[0]!r}; give one of them a label, as in mine={twice[0]}")
    if not config.composed:
        if not methods:
            raise UsageError("no method is left to run; name at least one, such as fedavg")
        return [(method, config.rounds if rounds is None else min(rounds, config.rounds)) for method, rounds in methods]
    default = registry_of("aggregator").get(config.aggregator)
    name = config.name or config.aggregator
    label = config.name or default.label or name
    own = assemble(name, label, config, config.components, config.clusterer)
    if own.name in names:
        index = names.index(own.name)
        # Baselines nobody asked for by name give way: `--aggregator fedavg` is a FedAvg of the user's own making.
        unasked = config.baselines == RunConfig.model_fields["baselines"].default
        if config.name or (not unasked and component_values(methods[index][0]) != component_values(own)):
            raise UsageError(f"two methods are called {own.name!r}; give the composed one another --name")
        if component_values(methods.pop(index)[0]) != component_values(own):
            own = replace(own, label=f"{own.label} (composed)")
    methods.append((own, None))
    return [(method, config.rounds if rounds is None else min(rounds, config.rounds)) for method, rounds in methods]


def unused_fields(config: RunConfig, methods: list[tuple[Method, int]]) -> list[str]:
    """Keys ``kind.name.field`` given for components that no method of the run uses."""
    used = {("dataset", config.dataset), ("model", config.model)}
    for method, _ in methods:
        used |= {(kind, part.name) for kind, part in method_parts(method)}
    return [
        f"{kind}.{name}.{field}"
        for kind, names in config.components.items()
        for name, fields in names.items()
        for field in fields
        if (kind, name) not in used
    ]


def method_parts(method: Method) -> list[tuple[str, Component]]:
    """A method's components with their kinds."""
    found: list[tuple[str, Component]] = [
        ("aggregator", method.aggregator),
        ("pseudo_labeler", method.pseudo_labeler),
        *(("objective", objective) for objective in method.objectives),
    ]
    return found if method.clusterer is None else [("clusterer", method.clusterer), *found]


def component_values(method: Method) -> list[dict[str, Any]]:
    """A method's components as plain values, for results."""
    return [{"kind": kind, "name": part.name, **part.model_dump(mode="json")} for kind, part in method_parts(method)]
