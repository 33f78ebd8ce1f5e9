"""Settings of trainings that do not take place: refused where somebody gives them, left out where a preset does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedwca.config.compose_methods import partition_of
from fedwca.config.run_config import Layer, RunConfig
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.partitions import Partition


def idle_tables(partition: type[Partition]) -> tuple[str, ...]:
    """Tables of a configuration that say how to train what nobody trains in a partition's setting."""
    if not partition.whole:
        return ("finish_training", "central_training")
    return (
        ("source_training",) if partition.some_unlabeled else ("source_training", "finish_training", "central_training")
    )


def check_trainings_are_used(keys: Sequence[str], methods: Sequence[Method], partition: type[Partition]) -> None:
    """Refuse values of a training that a partition's setting has, and none of a run's methods.

    Args:
        keys: dotted, of what a user set one by one; files and presets hold values for all methods of a setting.
        methods: of the run.
        partition: of the run.

    Raises:
        UsageError: names the key.
    """
    whys = {}
    if not any(method.finish for method in methods):
        whys["finish_training"] = "no method of this run has a last phase"
    if not any(method.start for method in methods):
        whys["central_training"] = "no method of this run trains a model at one place"
    for key in keys:
        table = key.partition(".")[0]
        if table in whys and table not in idle_tables(partition):
            raise UsageError(f"{key} is given, but {whys[table]}; leave it out")


def without_idle_tables(config: RunConfig) -> RunConfig:
    """A configuration as one is made today: runs of before kept what a preset says of trainings they do not have."""
    defaults = {table: RunConfig.model_fields[table].default for table in idle_tables(partition_of(config))}
    return config.model_copy(update=defaults)


def without_table(table: str, config: RunConfig, origins: Mapping[str, str]) -> tuple[RunConfig, dict[str, str]]:
    """A configuration, and where its values come from, less what a preset says of a training that does not take place.

    Args:
        table: field of the configuration, which `check_idle_table` has looked at.
        config: says the values.
        origins: of these.
    """
    kept = {key: origin for key, origin in origins.items() if not key.startswith(f"{table}.")}
    return config.model_copy(update={table: RunConfig.model_fields[table].default}), kept


def check_idle_table(
    table: str,
    config: RunConfig,
    origins: Mapping[str, str],
    base: Layer,
    why: str,
    repeats: Sequence[str] = ("config",),
) -> None:
    """Refuse what somebody says of a training that does not take place.

    Args:
        table: field of the configuration.
        config: says the values.
        origins: of these.
        base: the preset's layer.
        why: it does not.
        repeats: origins that may repeat that layer, or the defaults: a run's file holds every value.

    Raises:
        UsageError: names the key.
    """
    kind = RunConfig.model_fields[table].annotation
    assert kind is not None
    values, defaults = getattr(config, table).model_dump(), kind().model_dump()
    usual = kind(**base.get(table, {})).model_dump()
    for key in sorted(key for key in origins if key.startswith(f"{table}.")):
        name = key.removeprefix(f"{table}.")
        repeated = origins[key] in repeats and values.get(name) in (defaults.get(name), usual.get(name))
        if origins[key] in ("CLI", "config") and not repeated:
            raise UsageError(f"{key} is given, but {why}; leave out one of both")
