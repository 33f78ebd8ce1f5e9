"""Loads a run's images at the size that its architecture takes, and builds its networks."""

from __future__ import annotations

from collections.abc import Mapping

from fedwca.config.build_component import architecture, build_partition, partition_of
from fedwca.config.partition_and_domain import domain_of
from fedwca.config.run_config import RunConfig
from fedwca.core.component_answers import describe_value
from fedwca.core.network import Network
from fedwca.data.dataset import DatasetWarning, FederatedDataset
from fedwca.datasets import find_dataset
from fedwca.engine.memory import free_bytes, human_size
from fedwca.errors import DataError, UsageError
from fedwca.runs.watch_draws import watch_draws
from fedwca.warn_caller import warn_caller


def load(config: RunConfig, *, pretrained: bool = True, download: bool = True) -> tuple[FederatedDataset, str | None]:
    """The data set at the model's image size, and the name of the source or target domain, if the partition has one.

    Args:
        config: names the data set, the architecture and the partition.
        pretrained: False where the model's pre-trained weights are not needed afterwards, so that they need not exist.
        download: whether images that are not on this machine may be downloaded.

    Raises:
        DatasetMissing, DataError: see `fedwca.data`; or images may have to be downloaded, and ``download`` is False.
        CheckpointError: the model's pre-trained weights are missing or do not fit.
        UsageError: the source or target is not a domain of the data set, or the images do not fit into memory.

    Warns:
        UserWarning: the data set draws from a global random generator.
        DatasetWarning: the data set has a single class, or a source model is to be trained and the source has no image
            of a class.
    """
    files = find_dataset(config.dataset, config.data, config.components.get("dataset", {}).get(config.dataset))
    if files.may_download and not download:
        raise DataError(
            f"data set {config.dataset!r} is not read: it may have to be downloaded, from wherever the run folder "
            "says; fedwca plot, join and resume read it"
        )
    model = architecture(config)
    # Fail on missing or unfitting weights before minutes of decoding images.
    model.build(1, pretrained=pretrained and config.checkpoint is None)
    if (counts := files.count_images()) is not None:
        check_images_fit(config, counts, model.stored_side)
    domain_key = partition_of(config).domain_role
    if domain_key is None and config.checkpoint is None and not partition_of(config).trains_classifier:
        raise UsageError(
            f"partition {config.partition!r} names no domain to train a source model on; give it a domain_role, let "
            "its clients train the whole network (trains_classifier), or take a --checkpoint"
        )
    # A partition with new clients pools the published parts, and refuses this split with a sentence later.
    published = config.split == "published" and not partition_of(config).has_newcomers
    try:
        own = "draw from a generator of its own, as numpy.random.default_rng(0)"
        with watch_draws(f"data set {config.dataset!r}", right=own):
            loaded: object = (files.load_published if published else files.load)(model.stored_side)
    except OSError as error:
        if error.filename:
            raise
        raise DataError(f"data set {config.dataset!r} cannot be read ({error.strerror or error})") from error
    if not isinstance(loaded, FederatedDataset):
        raise DataError(f"data set {config.dataset!r}: load gave {describe_value(loaded)}; right is a FederatedDataset")
    dataset = loaded.resized(model.stored_side)
    partition = build_partition(config)
    if len(dataset.classes) < 2:
        warn_caller(f"{dataset.name} has one class: whatever a model says is right", DatasetWarning)
    if domain_key is None:
        return partition.choose_images(dataset, None), None
    domain = dataset.domain(domain_of(config) or files.default_domain or next(iter(dataset.domains))).name
    if domain_key == "source" and config.checkpoint is None:
        warn_of_absent_classes(dataset, domain)
    return partition.choose_images(dataset, domain), domain


def warn_of_absent_classes(dataset: FederatedDataset, source: str) -> None:
    """Warn of classes that a source model cannot learn.

    Args:
        dataset: all domains.
        source: name of the labelled source domain.

    Warns:
        DatasetWarning: the source has no image of a class.
    """
    counts = dataset.domain(source).class_counts(len(dataset.classes))
    absent = [name for name, count in zip(dataset.classes, counts, strict=True) if not count]
    if absent:
        listed = ", ".join(absent[:5]) + (", …" if len(absent) > 5 else "")
        warn_caller(
            f"source {source!r} has no image of {len(absent)} of {len(counts)} classes ({listed}): a model that is "
            "trained on it does not learn them",
            DatasetWarning,
        )


def build_network(config: RunConfig, classes: int, *, pretrained: bool = True) -> Network:
    """A new network for a run.

    Args:
        config: names the architecture.
        classes: M.
        pretrained: as for `Architecture.build`.
    """
    return architecture(config).build(classes, 0, pretrained, trains_classifier=partition_of(config).trains_classifier)


def check_images_fit(config: RunConfig, counts: Mapping[str, int], side: int) -> None:
    """Check, before decoding, that the images that clients use fit into memory.

    Args:
        config: says how many images clients use.
        counts: number of images of each domain.
        side: height and width of an image in pixels.

    Raises:
        UsageError: they do not fit; the message says how much they need, how much is free, and how to need less.
    """
    clients = config.clients
    if partition_of(config).has_newcomers:  # the images of all domains are dealt together
        clients += config.new_clients or config.clients
        counts = {"": sum(counts.values())}
    images = sum(min(count, clients * (config.samples or count)) for count in counts.values())
    needed, available = images * 3 * side**2, free_bytes("cpu")
    if available is not None and needed > available:
        raise UsageError(
            f"{images:,} images of {config.dataset} at {side}×{side} pixels take {human_size(needed)} of memory, and "
            f"{human_size(available)} are free: take fewer (--set dataset.images=N a domain, or --samples) or smaller "
            "ones (--set model.side=112)"
        )
