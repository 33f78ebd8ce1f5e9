"""Settings of trainings that do not take place: an error if the user gives them, removed if a preset does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedwca.config.run_config import Layer, RunConfig
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.partitions import Partition

NOT_TRAINED = {
    "source_training": "no source model is trained",
    "finish_training": "there is no last phase",
    "central_training": "no model is trained at one place",
}
"""By table: what a setting without that training lacks, for messages."""


def idle_tables(partition: type[Partition]) -> tuple[str, ...]:
    """Tables of a configuration for trainings that do not take place in a partition's setting."""
    if not partition.trains_classifier:
        return ("finish_training", "central_training")
    return (
        ("source_training",) if partition.some_unlabeled else ("source_training", "finish_training", "central_training")
    )


def explain_idle(table: str, partition: type[Partition]) -> str:
    """Why a table's training does not take place in a partition's setting, and what would be right, for messages."""
    if not partition.trains_classifier:  # also where no --source is given, so that it cannot be left out
        where = "with a labelled source at the server"
        return f"{where} {NOT_TRAINED[table]}; give --target DOMAIN in place of a source, or leave it out"
    where = f"--{partition.domain_role}" if partition.domain_role else f"partition {partition.name}"  # a preset's, too
    return f"with {where} {NOT_TRAINED[table]}; leave it out"


def check_trainings_are_used(keys: Sequence[str], methods: Sequence[Method], partition: type[Partition]) -> None:
    """Refuse values of a training that the partition's setting has but no method of the run.

    Args:
        keys: canonical dotted keys of values set singly by the user; files and presets hold values for all methods of
            a setting.
        methods: of the run.
        partition: of the run.

    Raises:
        UsageError: names the key.
    """
    reasons = {}
    if not any(method.finish for method in methods):
        reasons["finish_training"] = "no method of this run has a last phase"
    if not any(method.central for method in methods):
        reasons["central_training"] = "no method of this run trains a model at one place"
    for key in keys:
        table = key.partition(".")[0]
        if table in reasons and table not in idle_tables(partition):
            raise UsageError(f"{key} is given, but {reasons[table]}; leave it out")


def drop_idle_table(
    table: str,
    config: RunConfig,
    origins: Mapping[str, str],
    base: Layer,
    reason: str,
    repeats: Sequence[str] = ("config",),
) -> tuple[RunConfig, dict[str, str]]:
    """The configuration and its origins without the values of a training that does not take place.

    Args:
        table: field of the configuration, which gets its defaults.
        config: holds the values.
        origins: dotted key → layer that its value came from.
        base: the preset's layer.
        reason: why the training does not take place, and what would be right, for the message.
        repeats: origins that may repeat the preset's values or the defaults, since a run's file holds all values.

    Raises:
        UsageError: the user gives a value in the table; names its key.
    """
    default = RunConfig.model_fields[table].default
    values, defaults = getattr(config, table).model_dump(), default.model_dump()
    preset_values = type(default)(**base.get(table, {})).model_dump()
    keys = sorted(key for key in origins if key.startswith(f"{table}."))
    for key in keys:
        name = key.removeprefix(f"{table}.")
        is_repeated = origins[key] in repeats and values.get(name) in (defaults.get(name), preset_values.get(name))
        if origins[key] in ("CLI", "config") and not is_repeated:
            raise UsageError(f"{key} is given, but {reason}")
    return config.model_copy(update={table: default}), {k: origins[k] for k in origins if k not in keys}
