"""Methods from names of components: the composed one, and the baselines beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fedwca.config.baselines import Baseline, baseline_for
from fedwca.config.component_registries import registry_of
from fedwca.config.method_checks import check_clusterer_is_used, check_models_are_given
from fedwca.config.method_spec import parse_method
from fedwca.config.run_config import Components, RunConfig, merge
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.registry import Component

LONGEST_NAME = 220
"""Letters of a method's name as checkpoints' folders have it, percent-encoded; file systems end at 255."""


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
    check_clusterer_is_used(aggregator, clusterer)
    found = component("clusterer", clusterer or "finch", fields) if aggregator.grouping.needs_clusterer else None
    shown = label or name
    if found is not None and found.oracle:
        shown = f"{shown}, {found.label or found.name} (ORACLE)"
    labeler = component("pseudo_labeler", parts.pseudo_labeler, fields)
    objectives = tuple(component("objective", objective, fields) for objective in parts.objectives)
    check_models_are_given(aggregator, labeler, objectives)
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
    for method, _ in methods:
        check_name_length(method.name)
    names = [method.name for method, _ in methods]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two methods are called {twice[0]!r}; give one of them a label, as in mine={twice[0]}")
    if not config.composed:
        if not methods:
            raise UsageError("no method is left to run; name at least one, such as fedavg")
        return [(method, config.rounds if rounds is None else min(rounds, config.rounds)) for method, rounds in methods]
    default = registry_of("aggregator").get(config.aggregator)
    name = config.name or config.aggregator
    check_name_length(name)
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


def check_name_length(name: str) -> None:
    """Refuse a method's name that cannot be part of a file's.

    Raises:
        UsageError: it is too long.
    """
    if len(quote(name, safe="", errors="replace")) > LONGEST_NAME:
        raise UsageError(f"a method's name of {len(name)} letters is too long ({name[:30]!r}…); give it a short one")


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
