"""Methods from names of components: the composed one, and the baselines beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from fedwca.config.baselines import Baseline, baseline, baseline_for, baseline_names
from fedwca.config.component_registries import registry_of
from fedwca.config.method_checks import (
    check_adaptation_is_used,
    check_clusterer_is_used,
    check_epochs_are_whole,
    check_gradients_can_be_inferred,
    check_layers_can_stay,
    check_models_are_given,
    check_models_can_be_generated,
    check_networks_are_trained,
    check_steps_have_labels,
    check_views_are_known,
    check_whole_model_is_trained,
)
from fedwca.config.method_spec import parse_method
from fedwca.config.method_values import MethodValues
from fedwca.config.partition_checks import check_fits_partition
from fedwca.config.public_image_checks import check_public_images, check_sizes
from fedwca.config.run_config import Components, RunConfig, lay_over, merge
from fedwca.core.aggregator import Aggregator
from fedwca.core.clusterer import Clusterer
from fedwca.core.training_settings import Training
from fedwca.describe_problems import describe_problems
from fedwca.errors import InvalidConfig, UsageError
from fedwca.federated.method import Method
from fedwca.partitions import Partition, partitions
from fedwca.partitions.domains import Domains
from fedwca.registry import Component, canonical_name

T = TypeVar("T", bound=Training)

USUAL_CLUSTERER = "finch"
"""Where the aggregator is given clusters and nobody names a clusterer."""
LONGEST_NAME = 220
"""Letters of a method's name as checkpoints' folders have it, percent-encoded; file systems end at 255."""


def component(kind: str, name: str, fields: Components) -> Any:
    """The component of a kind and name with the fields given for it."""
    return registry_of(kind).build({"name": name, **fields.get(kind, {}).get(name, {})})


def partition_of(config: RunConfig) -> type[Partition]:
    """Who has which images and labels in a run, and what follows from it."""
    return partitions.get(config.partition)


def assemble(
    name: str, label: str | None, parts: RunConfig | Baseline, fields: Components, clusterer: str | None
) -> Method:
    """A method from names of components and their fields; how its clients train is the run's to say.

    Raises:
        UsageError: the parts do not fit each other.
    """
    aggregator = component("aggregator", parts.aggregator, fields)
    check_clusterer_is_used(aggregator, clusterer)
    needed = aggregator.grouping.needs_clusterer
    found = component("clusterer", clusterer or USUAL_CLUSTERER, fields) if needed else None
    shown = label or name
    if isinstance(parts, RunConfig) and not parts.name:
        shown = ", ".join([shown, *_parts_unlike_the_paper(parts, aggregator, found)])
    if found is not None and found.oracle:
        shown = f"{shown} (ORACLE)"
    labeler = component("pseudo_labeler", parts.pseudo_labeler, fields)
    objectives = tuple(component("objective", objective, fields) for objective in parts.objectives)
    finish = tuple(component("objective", objective, fields) for objective in parts.finish)
    named = parts.start if isinstance(parts, Baseline) else None
    start = None if named is None else component("central", named, fields)
    if start is not None and start.oracle:
        shown = f"{shown} (ORACLE)"
    adaptation = component("adaptation", parts.adaptation, fields) if parts.adaptation else None
    check_models_are_given(aggregator, labeler, (*objectives, *finish))
    check_views_are_known((*objectives, *finish))
    check_adaptation_is_used(name, adaptation, objectives, finish)
    return Method(name, shown, aggregator, labeler, objectives, found, finish, start, adaptation=adaptation)


def _parts_unlike_the_paper(config: RunConfig, aggregator: Aggregator, clusterer: Clusterer | None) -> list[str]:
    """What a composed method's label says behind its aggregator's: the parts that the aggregator's paper has not."""
    partition = partition_of(config)
    every = [baseline(name, partition.setting) for name in baseline_names(partition.setting)]
    usual = baseline(partition.usual, partition.setting)
    paper = next((one for one in every if one.label == aggregator.label and one.aggregator == aggregator.name), usual)
    unlike = []
    if clusterer is not None and (clusterer.oracle or clusterer.name != (paper.clusterer or USUAL_CLUSTERER)):
        unlike.append(_label_part("clusterer", clusterer.name))
    if config.adaptation:  # the label names it, and with it go its objectives
        return unlike
    if config.pseudo_labeler != paper.pseudo_labeler:
        unlike.append(_label_part("pseudo_labeler", config.pseudo_labeler))
    if set(config.objectives) != set(paper.objectives):
        unlike.append(" + ".join(_label_part("objective", name) for name in config.objectives))
    return unlike


def _label_part(kind: str, name: str) -> str:
    return registry_of(kind).get(name).label or name


def with_training(method: Method, config: RunConfig, training: Mapping[str, Any], finish: Mapping[str, Any]) -> Method:
    """A method with how its clients train, where that is not as in every method of the run.

    Args:
        method: to be changed.
        config: of the run.
        training: values for a round that win over the run's.
        finish: values for the last phase that win over the run's.

    Raises:
        InvalidConfig: a value is out of its bounds.
    """
    return replace(
        method,
        training=_changed(config.training, training, method.name) if training else None,
        finish_training=_changed(config.finish_training, finish, method.name) if method.finish else None,
    )


def _changed(run: T, own: Mapping[str, Any], name: str) -> T:
    try:
        return type(run)(**lay_over({"training": run.model_dump()}, {"training": dict(own)})["training"])
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error, f"{name}: training.", type(run).model_fields)) from error


def compose(config: RunConfig) -> list[tuple[Method, int]]:
    """All methods of a run with their rounds, the composed one last if there is one.

    A baseline takes from the run the fields of components both use, so that a comparison stands on equal terms; what
    its own file states wins, and over that what the run says of this method alone.

    Raises:
        UsageError: parts do not fit, two methods have one name, or a field is given for a component nobody uses.
    """
    partition = partition_of(config)
    methods = [_compose_baseline(config, partition, text) for text in config.baselines]
    for method, _ in methods:
        check_name_length(method.name)
    names = [method.name for method, _ in methods]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two methods are called {twice[0]!r}; give one of them a label, as in mine={twice[0]}")
    if not config.composed:
        if not methods:
            raise UsageError("no method is left to run; name at least one, such as fedavg")
        return _label_methods(config, methods)
    composed = _compose_own(config, partition)
    check_name_length(composed.name)
    if composed.name in names:
        index = names.index(composed.name)
        # Baselines nobody asked for by name give way: `--aggregator fedavg` is a FedAvg of the user's own making.
        unasked = config.baselines == RunConfig.model_fields["baselines"].default
        if config.name or (not unasked and describe_method(methods[index][0]) != describe_method(composed)):
            raise UsageError(f"two methods are called {composed.name!r}; give the composed one another --name")
        theirs, _ = methods.pop(index)
        if describe_method(theirs) != describe_method(composed) and theirs.label == composed.label:
            composed = replace(composed, label=f"{composed.label} (composed)")
    methods.append((composed, None))
    return _label_methods(config, methods)


def _label_methods(config: RunConfig, methods: Sequence[tuple[Method, int | None]]) -> list[tuple[Method, int]]:
    """The methods with their rounds, and a label each: those that share one have their name behind it."""
    labels = [method.label for method, _ in methods]
    found = []
    for method, rounds in methods:
        label = f"{method.label} ({method.name})" if labels.count(method.label) > 1 else method.label
        found.append(_with_rounds(config, replace(method, label=label), rounds))
    return found


def _compose_baseline(config: RunConfig, partition: type[Partition], text: str) -> tuple[Method, int | None]:
    """A baseline, or a variant of one, and the most rounds that it has."""
    spec = parse_method(text)
    found = baseline_for(spec, partition, config.methods.get(spec.head))
    made = assemble(spec.name, found.label, found, merge(config.components, found.components), found.clusterer or None)
    return with_training(made, config, found.training, found.finish_training), found.rounds


def _compose_own(config: RunConfig, partition: type[Partition]) -> Method:
    """The method composed of the run's own parts, by its name, or that of what it is."""
    name, label = config.aggregator, _label_part("aggregator", config.aggregator)
    if config.finish:
        # Without its last phase it is another method, which may be run beside it.
        name = "_".join([name, *config.finish])
        label = " + ".join([label, *(_label_part("objective", objective) for objective in config.finish)])
    if config.adaptation:
        name, label = f"{name}_{config.adaptation}", f"{label} + {_label_part('adaptation', config.adaptation)}"
    name, label = config.name or name, config.name or label
    values = config.methods.get(canonical_name(name), MethodValues())
    fields = merge(config.components, values.components)
    own = with_training(assemble(name, label, config, fields, config.clusterer), config, values.training, {})
    if config.name or partition.setting == Domains.setting:
        return own
    usual, _ = _compose_baseline(config, partition, partition.usual)
    return usual if describe_method(usual) == describe_method(own) else own


def _with_rounds(config: RunConfig, method: Method, most: int | None) -> tuple[Method, int]:
    """A method that fits the run, and its rounds, of which the last phase is one more."""
    check_fits_partition(
        method, config.training, config.batch_norm, partition_of(config), config.checkpoint is not None
    )
    check_public_images(method, component("partition", config.partition, config.components))
    check_sizes(method, component("model", config.model, config.components), config.checkpoint is not None)
    check_whole_model_is_trained(method, config.training)
    check_networks_are_trained(method, config.training)
    check_models_can_be_generated(method, config.engine, partition_of(config))
    check_gradients_can_be_inferred(method, config.training)
    check_layers_can_stay(method, partition_of(config), component("model", config.model, config.components))
    rounds = config.rounds if most is None else min(most, config.rounds)
    check_epochs_are_whole(method, config.training, rounds)
    check_steps_have_labels(method, config.training, partition_of(config))
    return method, rounds + bool(method.finish)


def check_name_length(name: str) -> None:
    """Refuse a method's name that cannot be part of a file's.

    Raises:
        UsageError: it is too long.
    """
    if len(quote(name, safe="", errors="replace")) > LONGEST_NAME:
        raise UsageError(f"a method's name of {len(name)} letters is too long ({name[:30]!r}…); give it a short one")


def method_parts(method: Method) -> list[tuple[str, Component]]:
    """A method's components with their kinds."""
    found: list[tuple[str, Component]] = [
        ("aggregator", method.aggregator),
        ("pseudo_labeler", method.pseudo_labeler),
        *(("objective", objective) for objective in dict.fromkeys((*method.objectives, *method.finish))),
    ]
    more: list[tuple[str, Component | None]] = [
        ("clusterer", method.clusterer),
        ("central", method.start),
        ("adaptation", method.adaptation),
    ]
    return [*((kind, part) for kind, part in more if part is not None), *found]


def component_values(method: Method) -> list[dict[str, Any]]:
    """A method's components as plain values, for results."""
    return [{"kind": kind, "name": part.name, **part.model_dump(mode="json")} for kind, part in method_parts(method)]


def describe_method(method: Method) -> dict[str, Any]:
    """A method's components, and what it has besides, as plain values; what it has not is not there."""
    own: dict[str, Any] = {"components": component_values(method)}
    if method.finish:
        own["finish"] = [objective.name for objective in method.finish]
    for name in ("training", "finish_training"):
        if (values := getattr(method, name)) is not None:
            own[name] = values.model_dump(mode="json")
    return own
