"""Which partition a user's values mean, and the one domain that is unlike the others."""

from __future__ import annotations

from fedwca.config.compose_methods import partition_of
from fedwca.config.run_config import Layer, RunConfig, merge
from fedwca.datasets import find_dataset
from fedwca.errors import FedwcaError, UsageError
from fedwca.partitions import Partition, partitions
from fedwca.registry import canonical_name

NO_TARGET = "none"
"""What ``--target`` says where every domain is a labelled source."""


def fill_in_meanings(written: Layer, given: Layer) -> None:
    """Put into a file's and a command line's values what these mean without saying it.

    Whoever names a folder and no data set means the folder of domains itself; no target means that all are sources.

    Raises:
        UsageError: no target, and another partition.
    """
    top = merge(written, given)
    if top.get("data") is not None and top.get("dataset") is None:
        (written if given.get("data") is None else given)["dataset"] = "folder"
    if top.get("target") == NO_TARGET:
        if canonical_name(str(top.get("partition") or "all_labelled")) != "all_labelled":
            other = top["partition"]
            raise UsageError(f"--target {NO_TARGET} means partition all_labelled, not {other}; leave one out")
        for values in (written, given):
            if values.pop("target", None) is not None:
                values["partition"] = "all_labelled"


def chosen_partition(values: Layer, usual: str | None = None) -> type[Partition]:
    """The partition that a user's values mean: the one that is named, or the one whose domain is.

    Args:
        values: the user's.
        usual: the preset's, where these mean none.

    Raises:
        UsageError: they mean two.
    """
    source, target = values.get("source"), values.get("target")
    if source is not None and target is not None:
        raise UsageError(
            f"--source {source} and --target {target}: a run has a labelled source at the server and clients without "
            "labels, or a target without labels and labelled clients; leave out one of both"
        )
    meant = "leave_one_out" if target is not None else str(RunConfig.model_fields["partition"].default)
    if usual is not None and (source is target is None or values.get(partitions.get(usual).named or "") is not None):
        meant = usual
    found = partitions.get(str(values.get("partition") or meant))
    for other in ("source", "target"):
        if values.get(other) is None or other == found.named:
            continue
        right = (
            f"has a {found.named}; give --{found.named}"
            if found.named
            else "deals images of all domains together; leave it out"
        )
        raise UsageError(f"--{other} {values[other]}: partition {found.name} {right}")
    return found


def domain_of(config: RunConfig) -> str | None:
    """The one domain of a run that is unlike the others, its source or its target; None where nobody names it."""
    named = partition_of(config).named
    found: str | None = getattr(config, named) if named else None
    return found


def name_domain(config: RunConfig, domain: str | None) -> dict[str, str | None]:
    """What a configuration says of the domain that is unlike the others; nothing where there is none."""
    named = partition_of(config).named
    return {named: domain} if named else {}


def default_domain(config: RunConfig) -> str | None:
    """The domain that is unlike the others, where nobody names one; None where only the images can say it."""
    try:
        found = find_dataset(config.dataset, config.data, config.components.get("dataset", {}).get(config.dataset))
    except FedwcaError:
        return None  # said when the data set is loaded
    return found.first_domain()
