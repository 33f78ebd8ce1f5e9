"""The partition that a user's values imply, and the special domain of a run: its source or its target."""

from __future__ import annotations

from fedwca.config.build_component import partition_of
from fedwca.config.config_layers import merge
from fedwca.config.run_config import Layer, RunConfig
from fedwca.datasets import find_dataset
from fedwca.errors import FedwcaError, UsageError
from fedwca.partitions import Partition, partitions
from fedwca.registry import canonical_name

WITHOUT_FOLDER = ("digits_mini", "digits_plain")
"""Data sets that come with fedwca and are in no folder."""
NO_TARGET = "none"
"""Value of ``--target`` for runs in which all domains are labelled sources."""


def add_implied_values(file_values: Layer, option_values: Layer) -> None:
    """Add to a file's and a command line's values, in place, what they imply.

    A folder without a data set implies the data set ``folder``, as does one beside a file's data set that reads none;
    target ``none`` implies the partition ``all_labelled``.

    Args:
        file_values: values of the file.
        option_values: values of the command line, which take precedence.

    Raises:
        UsageError: target ``none`` is combined with another partition.
    """
    merged = merge(file_values, option_values)
    if merged.get("data") is not None and merged.get("dataset") is None:
        (file_values if option_values.get("data") is None else option_values)["dataset"] = "folder"
    named_by_option = option_values.get("data") is not None and option_values.get("dataset") is None
    # As in the config.json of the default bench; its data set would leave the folder unread.
    if named_by_option and canonical_name(str(file_values.get("dataset") or "")) in WITHOUT_FOLDER:
        option_values["dataset"] = "folder"
    if canonical_name(str(merged.get("target") or "")) == NO_TARGET:
        if canonical_name(str(merged.get("partition") or "all_labelled")) != "all_labelled":
            partition = merged["partition"]
            raise UsageError(f"--target {NO_TARGET} means partition all_labelled, not {partition}; leave one out")
        for values in (file_values, option_values):
            if values.pop("target", None) is not None:
                values["partition"] = "all_labelled"


def chosen_partition(values: Layer, preset_partition: str | None) -> type[Partition]:
    """The partition that a user's values imply: the named one, or the one whose special domain is named.

    Args:
        values: the user's.
        preset_partition: the preset's partition, for values that imply none.

    Raises:
        UsageError: the values contradict each other.
    """
    source, target = values.get("source"), values.get("target")
    if source is not None and target is not None:
        raise UsageError(
            f"--source {source} and --target {target}: a run has a labelled source at the server and clients without "
            "labels, or a target without labels and labelled clients; leave out one of both"
        )
    implied = "leave_one_out" if target is not None else str(RunConfig.model_fields["partition"].default)
    if preset_partition is not None and (
        source is target is None or values.get(partitions.get(preset_partition).domain_role or "") is not None
    ):
        implied = preset_partition
    partition = partitions.get(str(values.get("partition") or implied))
    for field in ("source", "target"):
        if values.get(field) is None or field == partition.domain_role:
            continue
        correction = (
            f"has a {partition.domain_role}; give --{partition.domain_role}"
            if partition.domain_role
            else "deals images of all domains together; leave it out"
        )
        raise UsageError(f"--{field} {values[field]}: partition {partition.name} {correction}")
    return partition


def domain_of(config: RunConfig) -> str | None:
    """The special domain of a run, its source or its target; None if it is not named or there is none."""
    field = partition_of(config).domain_role
    domain: str | None = getattr(config, field) if field else None
    return domain


def name_domain(config: RunConfig, domain: str | None) -> dict[str, str | None]:
    """The configuration field that names the special domain, with its value; empty if the partition has none."""
    field = partition_of(config).domain_role
    return {field: domain} if field else {}


def default_domain(config: RunConfig) -> str | None:
    """The special domain if none is named; None if it can be determined only by reading the images."""
    try:
        dataset = find_dataset(config.dataset, config.data, config.components.get("dataset", {}).get(config.dataset))
    except FedwcaError:
        return None  # raised again when the data set is loaded
    return dataset.find_default_domain()
