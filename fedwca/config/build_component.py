"""Components of a run by kind and name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import Components, RunConfig
from fedwca.partitions import Partition, partitions

if TYPE_CHECKING:
    from fedwca.core.architecture import Architecture


def component(kind: str, name: str, fields: Components) -> Any:
    """The component of a kind and name, with the fields that are given for it."""
    return registry_of(kind).build({"name": name, **fields.get(kind, {}).get(name, {})})


def architecture(config: RunConfig) -> Architecture:
    """The configured architecture with its configured fields."""
    model: Architecture = component("model", config.model, config.components)
    return model


def build_partition(config: RunConfig) -> Partition:
    """The configured partition with its configured fields."""
    partition: Partition = component("partition", config.partition, config.components)
    return partition


def partition_of(config: RunConfig) -> type[Partition]:
    """The class of a run's partition: which client has which images and labels."""
    return partitions.get(config.partition)
