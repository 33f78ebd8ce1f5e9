"""The registry of each kind of component; importing this module imports no component."""

from __future__ import annotations

import importlib
from typing import Any

from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import Registry, canonical_name

KINDS = [
    "dataset",
    "model",
    "partition",
    "clusterer",
    "aggregator",
    "pseudo_labeler",
    "objective",
    "adaptation",
    "central",
    "logger",
]
PLURALS = {kind: f"{kind}s" for kind in KINDS}


def registry_of(kind: str) -> Registry[Any]:
    """The registry of a kind, given as ``aggregator``, ``aggregators``, ``pseudo-labeler`` …

    Raises:
        UsageError: there is no such kind.
    """
    name = canonical_name(kind)
    plural = PLURALS.get(name, name)
    if plural not in PLURALS.values():
        raise UsageError(describe_unknown("kind", kind, [*PLURALS, "baseline", "preset"]))
    registry = getattr(importlib.import_module(f"fedwca.{plural}"), plural)
    assert isinstance(registry, Registry)
    return registry
