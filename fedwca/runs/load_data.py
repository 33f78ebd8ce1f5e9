"""The images of a run, at the size that its architecture takes, and networks for them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from fedwca.config.component_registries import registry_of
from fedwca.config.compose_methods import component, partition_of
from fedwca.config.partition_and_domain import domain_of
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Architecture, Network
from fedwca.data.dataset import DatasetWarning, FederatedDataset
from fedwca.datasets import find_dataset
from fedwca.engine.memory import free_bytes, human_size
from fedwca.errors import DataError, UsageError
from fedwca.partitions import Partition


def load(config: RunConfig) -> tuple[FederatedDataset, str | None]:
    """The data set at the model's image size, and the name of the one domain that is unlike the others, if one is.

    Raises:
        DatasetMissing, DataError: see `fedwca.data`.
        CheckpointError: the model's pre-trained weights are not there or do not fit.
        UsageError: the source, or the target, is not a domain of it, or its images do not fit into memory.

    Warns:
        DatasetWarning: the source has no image of a class, and a source model is to be trained.
    """
    files = find_dataset(config.dataset, config.data, config.components.get("dataset", {}).get(config.dataset))
    model = architecture(config)
    # Weights that are not there or do not fit are better known before minutes of decoding.
    model.build(1, pretrained=config.checkpoint is None)
    if (counts := files.count_images()) is not None:
        check_images_fit(config, counts, model.stored)
    named = partition_of(config).named
    published = config.split == "published" and named is not None  # who pools all parts refuses to be told of them
    try:
        dataset = (files.load_published if published else files.load)(model.stored).resized(model.stored)
    except OSError as error:
        if error.filename:
            raise
        raise DataError(f"data set {config.dataset!r} cannot be read ({error.strerror or error})") from error
    chosen: Partition = component("partition", config.partition, config.components)
    if named is None:
        return chosen.choose_images(dataset, None), None
    name = dataset.domain(domain_of(config) or files.default_source or next(iter(dataset.domains))).name
    if len(dataset.classes) < 2:
        warnings.warn(f"{dataset.name} has one class: whatever a model says is right", DatasetWarning, stacklevel=2)
    if named == "source" and config.checkpoint is None:
        warn_of_absent_classes(dataset, name)
    return chosen.choose_images(dataset, name), name


def warn_of_absent_classes(dataset: FederatedDataset, source: str) -> None:
    """Say which classes a source model cannot learn.

    Args:
        dataset: all domains.
        source: name of the one with labels.

    Warns:
        DatasetWarning: the source has no image of a class.
    """
    has = np.bincount(dataset.domain(source).labels, minlength=len(dataset.classes)) > 0
    absent = [name for name, known in zip(dataset.classes, has, strict=True) if not known]
    if absent:
        shown = ", ".join(absent[:5]) + (", …" if len(absent) > 5 else "")
        warnings.warn(
            f"source {source!r} has no image of {len(absent)} of {len(has)} classes ({shown}): a model that is trained "
            "on it never predicts them",
            DatasetWarning,
            stacklevel=2,
        )


def architecture(config: RunConfig) -> Architecture:
    """The architecture with the fields given for it."""
    fields = config.components.get("model", {}).get(config.model, {})
    built: Architecture = registry_of("model").build({"name": config.model, **fields})
    return built


def build_network(config: RunConfig, classes: int, *, pretrained: bool = True) -> Network:
    """A fresh network of a run, whole where its partition lets clients train all of it.

    Args:
        config: names the architecture.
        classes: M.
        pretrained: as of `Architecture.build`.
    """
    return architecture(config).build(classes, 0, pretrained, whole=partition_of(config).whole)


def check_images_fit(config: RunConfig, counts: Mapping[str, int], side: int) -> None:
    """Nothing where the images that clients take fit into memory: better known before they are decoded.

    Args:
        config: says how many images clients take.
        counts: images of each domain.
        side: their height and width in pixels.

    Raises:
        UsageError: they do not; says what they need, what there is, and how to need less.
    """
    most = config.samples and config.samples * (config.clients + (config.new_clients or 0))
    taken = sum(count if most is None else min(count, most) for count in counts.values())
    needed, there = taken * 3 * side**2, free_bytes("cpu")
    if there is not None and needed > there:
        raise UsageError(
            f"{taken:,} images of {config.dataset} at {side}×{side} pixels take {human_size(needed)} of memory, and "
            f"{human_size(there)} are free: take fewer (--set dataset.images=N a domain, or --samples) or smaller ones "
            "(--set model.side=112)"
        )
