"""Components of a run by kind and name."""

from __future__ import annotations

from typing import Any

from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import Components, RunConfig
from fedwca.partitions import Partition, partitions


def component(kind: str, name: str, fields: Components) -> Any:
    """The component of a kind and name, with the fields that are given for it."""
    return registry_of(kind).build({"name": name, **fields.get(kind, {}).get(name, {})})


def partition_of(config: RunConfig) -> type[Partition]:
    """The class of a run's partition: which client has which images and labels."""
    return partitions.get(config.partition)
