"""Parse ``--set`` options: each sets a field of a component or of a training table."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.config.component_registries import registry_of
from fedwca.config.config_layers import merge
from fedwca.config.run_config import RUN_KINDS, TABLES, Layer
from fedwca.config.spell_out import check_is_no_name
from fedwca.core.dotted_keys import flatten_keys
from fedwca.describe_problems import describe_unknown
from fedwca.errors import InvalidConfig
from fedwca.registry import canonical_name


def parse_set_options(pairs: Sequence[tuple[str, str]], chosen: dict[str, list[str]]) -> Layer:
    """``--set`` pairs as a layer: ``kind.field=value`` for the chosen component, ``kind.name.field=value`` for any.

    Args:
        pairs: (key, value).
        chosen: kind → names of the chosen components.

    >>> parse_set_options([("aggregator.ta", "0.05")], {"aggregator": ["wca"]})
    {'components': {'aggregator': {'wca': {'ta': '0.05'}}}}

    Raises:
        InvalidConfig: the kind is unknown, several components of the kind are chosen, a field is given twice, or it is
            called ``name``.
        UsageError: one of several that are chosen is unknown or cannot be loaded.
    """
    layer: Layer = {}
    for key, value in pairs:
        previous_count = len(list(flatten_keys(layer)))
        layer = merge(layer, _set_option(key, value, chosen))
        if len(list(flatten_keys(layer))) == previous_count:
            raise InvalidConfig(f"--set {key}={value}: {key} is given twice")
    return layer


def _set_option(key: str, value: str, chosen: dict[str, list[str]]) -> Layer:
    head, *name_parts = [canonical_name(part) for part in key.split(".")]
    if head in TABLES and len(name_parts) == 1:
        return {head: {name_parts[0]: value}}
    if head not in RUN_KINDS or len(name_parts) not in (1, 2):
        heads = (*RUN_KINDS, *sorted(TABLES))
        reason = "has not the right number of parts" if head in heads else describe_unknown("kind", head, heads)
        raise InvalidConfig(f"--set {key}={value}: {reason}")
    if len(name_parts) == 1 and len(chosen[head]) != 1:
        raise InvalidConfig(f"--set {key}={value}: {_describe_choice(head, chosen[head], name_parts[0])}")
    name, field = name_parts if len(name_parts) == 2 else (chosen[head][0], name_parts[0])
    check_is_no_name(head, name, field, value)
    return {"components": {head: {name: {field: value}}}}


def _describe_choice(kind: str, names: Sequence[str], field: str) -> str:
    """How to say which component of a kind a field is of, where none is chosen, or several are."""
    owners = [name for name in names if field in registry_of(kind).get(name).model_fields]
    if names and not owners:
        return f"there is no such field in {' or '.join(names)}"
    hint = "several are chosen" if names else "it belongs to one by name"
    return f"{hint}; say {' or '.join(f'{kind}.{name}.{field}' for name in owners or ['NAME'])}"
