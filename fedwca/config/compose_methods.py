"""Compose methods from names of components: the composed method, and the baselines beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from fedwca.config.assemble_method import assemble, label_part
from fedwca.config.baselines import baseline_for
from fedwca.config.build_component import architecture, build_partition, partition_of
from fedwca.config.config_layers import lay_over, merge
from fedwca.config.describe_method import describe_method
from fedwca.config.method_checks import (
    check_epochs_are_whole,
    check_layers_can_stay,
    check_models_can_be_generated,
)
from fedwca.config.method_spec import parse_method
from fedwca.config.method_values import MethodValues
from fedwca.config.partition_checks import check_fits_partition, check_steps_have_labels
from fedwca.config.public_image_checks import check_public_images, check_sizes
from fedwca.config.run_config import RunConfig
from fedwca.core.training_settings import Training
from fedwca.describe_problems import describe_problems
from fedwca.errors import InvalidConfig, UsageError
from fedwca.federated.check_training import check_training_fits
from fedwca.federated.method import Method
from fedwca.partitions import Partition
from fedwca.partitions.domains import Domains
from fedwca.registry import canonical_name

T = TypeVar("T", bound=Training)

LONGEST_NAME = 220
"""Maximum length of a method's name after percent-encoding, as in checkpoint folders; file systems allow 255."""


def with_training(method: Method, config: RunConfig, training: Mapping[str, Any], finish: Mapping[str, Any]) -> Method:
    """A copy of a method with its own training settings, where they differ from the run's.

    Args:
        method: left as it is.
        config: of the run.
        training: values for a round that take precedence over the run's; empty: none.
        finish: values for the last phase that take precedence over the run's.

    Raises:
        InvalidConfig: a value is out of its bounds.
    """
    return replace(
        method,
        training=changed_training(config.training, training, method.name) if training else None,
        finish_training=changed_training(config.finish_training, finish, method.name) if method.finish else None,
    )


def changed_training(training: T, values: Mapping[str, Any], name: str) -> T:
    """A run's training with a method's own values.

    Args:
        training: of the run.
        values: that take precedence.
        name: of the method, for messages.

    Raises:
        InvalidConfig: a value is out of its bounds.
    """
    try:
        return type(training)(**lay_over({"training": training.model_dump()}, {"training": dict(values)})["training"])
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error, f"{name}: training.", type(training))) from error


def compose(config: RunConfig) -> list[tuple[Method, int]]:
    """All methods of a run with their rounds, the composed one last if there is one.

    A baseline takes the fields of its components from the run, so that methods are compared on equal terms. Fields in
    its own file take precedence, and over these the values that the run gives for this method alone.

    Raises:
        UsageError: parts do not fit, two methods have the same name, or there is no method to run.
    """
    partition = partition_of(config)
    methods = [_compose_baseline(config, partition, text) for text in config.baselines]
    for method, _ in methods:
        check_name_length(method.name)
    # Methods are found by their names without regard to capitals and dashes, so names may not differ in these alone.
    names = [canonical_name(method.name) for method, _ in methods]
    if repeated_names := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two methods are called {repeated_names[0]!r}; give one of them a label, as in mine={repeated_names[0]}"
        )
    if not config.composed:
        if not methods:
            raise UsageError("no method is left to run; name at least one, such as fedavg")
        return _label_methods(config, methods)
    composed = _compose_own(config, partition)
    check_name_length(composed.name)
    if canonical_name(composed.name) in names:
        index = names.index(canonical_name(composed.name))
        # A default baseline gives way to a composed method of the same name, such as `--aggregator fedavg`.
        uses_defaults = config.baselines == RunConfig.model_fields["baselines"].default
        if config.name or (not uses_defaults and describe_method(methods[index][0]) != describe_method(composed)):
            raise UsageError(f"two methods are called {names[index]!r}; give the composed one another --name")
        replaced, _ = methods.pop(index)
        if describe_method(replaced) != describe_method(composed) and replaced.label == composed.label:
            composed = replace(composed, label=f"{composed.label} (composed)")
    methods.append((composed, None))
    return _label_methods(config, methods)


def _label_methods(config: RunConfig, methods: Sequence[tuple[Method, int | None]]) -> list[tuple[Method, int]]:
    """The methods with their rounds and unique labels: a label that several methods share is followed by the name."""
    labels = [method.label for method, _ in methods]
    labelled = []
    for method, rounds in methods:
        label = f"{method.label} ({method.name})" if labels.count(method.label) > 1 else method.label
        labelled.append(_with_rounds(config, replace(method, label=label), rounds))
    return labelled


def _compose_baseline(config: RunConfig, partition: type[Partition], text: str) -> tuple[Method, int | None]:
    """A baseline or a variant of one, and its maximum number of rounds (None: no maximum)."""
    spec = parse_method(text)
    definition = baseline_for(spec, partition, config.methods.get(spec.head))
    fields = merge(config.components, definition.components)
    method = assemble(spec.name, definition.label, definition, fields)
    return with_training(method, config, definition.training, definition.finish_training), definition.rounds


def _compose_own(config: RunConfig, partition: type[Partition]) -> Method:
    """The method composed of the run's own parts; if it equals the setting's default baseline, that one."""
    name, label = config.aggregator, label_part("aggregator", config.aggregator)
    if config.finish:
        # The same parts without the last phase are another method, which may run beside this one.
        name = "_".join([name, *config.finish])
        label = " + ".join([label, *(label_part("objective", objective) for objective in config.finish)])
    if config.adaptation:
        name, label = f"{name}_{config.adaptation}", f"{label} + {label_part('adaptation', config.adaptation)}"
    name, label = config.name or name, config.name or label
    values = config.methods.get(canonical_name(name), MethodValues())
    fields = merge(config.components, values.components)
    composed = with_training(assemble(name, label, config, fields), config, values.training, {})
    if config.name or partition.setting == Domains.setting:
        return composed
    default_method, _ = _compose_baseline(config, partition, partition.default_baseline)
    return default_method if describe_method(default_method) == describe_method(composed) else composed


def _with_rounds(config: RunConfig, method: Method, max_rounds: int | None) -> tuple[Method, int]:
    """Check that a method fits the run; returns it with its rounds, where the last phase counts as one more."""
    partition, training = partition_of(config), method.training_in(config.training)
    built_partition, model = build_partition(config), architecture(config)
    rounds = config.rounds if max_rounds is None else min(max_rounds, config.rounds)
    with _name_in_errors(method.name):
        check_fits_partition(method, training, config.batch_norm, partition, config.checkpoint is not None)
        check_public_images(method, built_partition)
        check_sizes(method, model, config.checkpoint is not None)
        check_training_fits(method, training)
        check_models_can_be_generated(method, config.engine, partition)
        check_layers_can_stay(method, partition, model)
        check_epochs_are_whole(training, rounds)
        check_steps_have_labels(method, training, partition)
        if method.central is not None:
            config.central_training.as_long_as(config.training, config.rounds)  # refuses where it cannot know
    return method, rounds + bool(method.finish)


@contextmanager
def _name_in_errors(method: str) -> Iterator[None]:
    """Begin the message of a check that fails with the name of the method."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"method {method!r}: {error}") from error


def check_name_length(name: str) -> None:
    """Refuse a method's name that is too long to be part of a file name.

    Raises:
        UsageError: it is too long.
    """
    if len(quote(name, safe="", errors="replace")) > LONGEST_NAME:
        raise UsageError(f"a method's name of {len(name)} letters is too long ({name[:30]!r}…); give it a short one")
