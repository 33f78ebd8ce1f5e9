"""A configuration merged from layers: command line over file over preset over field default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedwca.config.method_values import LENGTHS, drop_overridden_values
from fedwca.config.run_config import TABLES, Layer, RunConfig, validate
from fedwca.core.dotted_keys import flatten_keys
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError

TRAINING_WORDS = ("epochs", "lr", "batch_size")
"""Fields of `Training` that have an option of their own."""
TABLE_TYPES = tuple(TABLES.values())
REPEATED = {"baseline": "baselines", "objective": "objectives"}
"""Repeatable option → field that holds all its values."""


def layer_from_words(words: Mapping[str, Any]) -> Layer:
    """A user's values as a layer; keys are fields of `RunConfig`, options in `REPEATED`, and `TRAINING_WORDS`.

    >>> layer_from_words({"rounds": 3, "lr": 0.01, "baseline": "local"})
    {'rounds': 3, 'baselines': ['local'], 'training': {'lr': 0.01}}

    Raises:
        UsageError: a key is unknown, or an option and its field are both given.
    """
    # Layers are read several times, and an iterator only once.
    words = {word: list(value) if isinstance(value, Iterator) else value for word, value in words.items()}
    for option, field in REPEATED.items():
        if option in words:
            if field in words:
                raise UsageError(f"{option} and {field} are the same; leave one out")
            option_value = words[option]
            other_words = {word: value for word, value in words.items() if word != option}
            words = {
                **other_words,
                field: list(option_value) if isinstance(option_value, list | tuple) else [option_value],
            }
    known_names = [*RunConfig.model_fields, *TRAINING_WORDS]
    if unknown_names := [word for word in words if word not in known_names]:
        raise UsageError(describe_unknown("setting", unknown_names[0], known_names))
    # A training may be given as an instance, of which what was set counts, as of a table; `model_dump` leaves out more.
    layer = {
        word: {name: getattr(value, name) for name in value.model_fields_set}
        if isinstance(value, TABLE_TYPES)
        else value
        for word, value in words.items()
        if word not in TRAINING_WORDS
    }
    training = {word: words[word] for word in TRAINING_WORDS if word in words}
    # Beside an instance, such as that of a finished run, a word changes one of its values.
    table = words.get("training")
    if isinstance(table, Mapping) and (repeated := [word for word in training if word in table]):
        raise UsageError(f"{repeated[0]} and training.{repeated[0]} are the same; leave one out")
    return merge(layer, {"training": training}) if training else layer


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables merged; values of the second take precedence.

    >>> merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    """
    merged = dict(low)
    for key, value in high.items():
        both_tables = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both_tables else value
    return merged


def lay_over(low: Mapping[str, Any], high: Mapping[str, Any]) -> Layer:
    """Like `merge`, but if ``high`` sets only one of a round's epochs and steps, the other is removed.

    >>> lay_over({"training": {"epochs": 5, "lr": 0.1}}, {"training": {"steps": 20}})
    {'training': {'lr': 0.1, 'steps': 20}}
    """
    merged = merge(low, high)
    training = high.get("training", {})
    if isinstance(training, Mapping) and len(given := LENGTHS & training.keys()) == 1:
        merged["training"] = {key: value for key, value in merged["training"].items() if key not in LENGTHS - given}
    return merged


def resolve(
    layers: Mapping[str, Layer], is_stated: Callable[[str, str], bool] = lambda method, key: False
) -> tuple[RunConfig, dict[str, str]]:
    """The configuration merged from layers, and the origin of each value that was set, by dotted key.

    Args:
        layers: origin → layer in increasing precedence, such as ``{"preset paper": …, "config": …, "CLI": …}``.
        is_stated: see `drop_overridden_values`.
    """
    values: Layer = {}
    origins: dict[str, str] = {}
    for origin, layer in layers.items():
        remaining = drop_overridden_values(values, layer, is_stated)
        before = dict(flatten_keys(values))
        origins |= {key: origin for key, value in flatten_keys(remaining) if value != before[key]}
        values = lay_over(remaining, layer)
        origins |= {key: origin for key, _ in flatten_keys(layer)}
    leaves = dict(flatten_keys(values))
    return validate(values), {k: origin for k, origin in origins.items() if k in leaves or not k.startswith("methods.")}
