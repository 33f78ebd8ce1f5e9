"""Values of ``--set``: which field of which chosen component, or of which training, each one means."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.config.run_config import KINDS, Layer, merge
from fedwca.core.dotted_keys import flatten_keys
from fedwca.describe_problems import describe_unknown
from fedwca.errors import InvalidConfig
from fedwca.registry import canonical_name

TABLES = {"training", "finish_training", "source_training", "central_training"}


def parse_set_options(pairs: Sequence[tuple[str, str]], chosen: dict[str, list[str]]) -> Layer:
    """``--set`` pairs as a layer: ``kind.field=value`` for the chosen component, ``kind.name.field=value`` for any.

    >>> parse_set_options([("aggregator.ta", "0.05")], {"aggregator": ["wca"]})
    {'components': {'aggregator': {'wca': {'ta': '0.05'}}}}

    Raises:
        InvalidConfig: an unknown kind, a field of a kind of which several are chosen, or a field that is given twice.
    """
    layer: Layer = {}
    for key, value in pairs:
        before = len(list(flatten_keys(layer)))
        layer = merge(layer, _set_option(key, value, chosen))
        if len(list(flatten_keys(layer))) == before:
            raise InvalidConfig(f"--set {key}={value}: {key} is given twice")
    return layer


def _set_option(key: str, value: str, chosen: dict[str, list[str]]) -> Layer:
    head, *rest = [canonical_name(part) for part in key.split(".")]
    if head in TABLES and len(rest) == 1:
        return {head: {rest[0]: value}}
    if head not in KINDS or len(rest) not in (1, 2):
        known = (*KINDS, *sorted(TABLES))
        why = "has not the right number of parts" if head in known else describe_unknown("kind", head, known)
        raise InvalidConfig(f"--set {key}={value}: {why}")
    if len(rest) == 1 and len(chosen[head]) != 1:
        which = "several are chosen" if chosen[head] else "it belongs to one by name"
        raise InvalidConfig(f"--set {key}={value}: {which}; say {head}.{(chosen[head] or ['NAME'])[0]}.{rest[0]}")
    name, field = rest if len(rest) == 2 else (chosen[head][0], rest[0])
    return {"components": {head: {name: {field: value}}}}
