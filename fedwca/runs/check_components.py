"""A dry run of a run's components before training, so that what would fail after it fails now."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace

import torch

from fedwca.config.build_component import architecture
from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import RunConfig
from fedwca.core.clusterer import Clusterer
from fedwca.core.grouping import check_labels
from fedwca.core.network import Network
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.memory import free_bytes
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.precision import check_precision, check_workers
from fedwca.engine.randomness import draw_changes
from fedwca.errors import UsageError
from fedwca.federated.assign_clusters import read_client_vectors
from fedwca.federated.method import Method
from fedwca.federated.source_model import load_source
from fedwca.runs.records.round_record import check_report_names
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resources.engine_names import engine_name
from fedwca.runs.resources.select_engine import config_of_method
from fedwca.warn_caller import warn_caller


def dry_run_components(
    config: RunConfig,
    methods: list[tuple[Method, int]],
    network: Network,
    classes: tuple[str, ...],
    clients: int,
    elsewhere: bool = False,
) -> None:
    """Check precision and checkpoint, and call every clusterer on dummy data; a misfit is found before training.

    Args:
        config: of the run.
        methods: of the run, with their rounds.
        network: of the run; without a checkpoint its backbone is pretrained as the source model's will be.
        classes: that the model tells apart.
        clients: K, how many clients the run has; a clusterer may need that many, or know them.
        elsewhere: whether clients compute on machines of their own; the device is then that of the source model alone.

    Raises:
        CheckpointError: the user's own source model is missing or does not fit the architecture.
        InvalidConfig: a clusterer needs a layer that the model does not have.
        UsageError: the device, or an engine's workers, do not support the requested precision; or see
            `check_report_names`.
        FedwcaError: see `try_clusterer`.

    Warns:
        UserWarning: the backbone is frozen and a clusterer selects a layer by number, which then counts from the
            bottleneck.
    """
    model = architecture(config)
    device = torch.device(resolve_device(config.device))
    check_precision(config.precision, network.class_vectors.dtype, None if elsewhere else device)
    if not elsewhere and any(engine_name(config_of_method(config, method)) == "loop" for method, _ in methods):
        check_workers(config.precision, config.workers)
    if config.checkpoint is not None:
        load_source(config.checkpoint, classes, model)
    # Probes are ordinary clusterers; which method they are put into does not matter here.
    probes = map(registry_of("clusterer").build, config.probes)
    methods = [*methods, *((replace(methods[0][0], clusterer=probe), 1) for probe in probes)]
    clusterers = [method.clusterer for method, rounds in methods if rounds and method.clusterer is not None]
    if network.backbone.frozen and any(clusterer.layer_number is not None for clusterer in clusterers):
        warn_caller(
            "the backbone is frozen, so layers are counted from the bottleneck on: signature 1 is the bottleneck",
        )
    for method, _ in methods:
        check_report_names(method.aggregator)
    if not clusterers:
        return
    made_up = make_up_signatures(network, model.stored_side, clients)
    for clusterer in clusterers:
        truth = made_up.truth if clusterer.oracle else None
        try:
            try_clusterer(clusterer, replace(made_up, truth=truth, measured={}))
        except UsageError:
            raise
        except Exception:
            if made_up.clients == clients:  # else it may need all of them
                raise


def make_up_signatures(network: Network, side: int, clients: int) -> BankSignatures:
    """Signatures of made-up clients, all of one domain; of four if the memory of this machine holds no more.

    Args:
        network: which they all have, with other values.
        side: height and width of their images in pixels.
        clients: how many are wanted.
    """
    layout = Layout.of(network)
    source = layout.read(network)
    needed, free = 3 * clients * layout.width * source.element_size(), free_bytes("cpu")  # clusterers make copies
    made = clients if free is None or needed <= free else min(clients, 4)
    bank = draw_changes(made, layout.width, source.dtype).mul_(1e-3).add_(source)
    images = torch.arange(made).to(torch.uint8).view(-1, 1, 1, 1, 1).expand(made, 2, 3, side, side)  # takes no memory
    return BankSignatures(bank, layout, source, torch.zeros(made, dtype=torch.int64), list(images), network=network)


def try_clusterer(clusterer: Clusterer, signatures: BankSignatures) -> None:
    """Let a clusterer group and compare made-up clients; a run compares them late or, unless a client joins, never.

    Args:
        clusterer: of a method.
        signatures: of these clients, nothing of which has been read.

    Raises:
        UsageError: it cannot read what it needs, or it reads moments that its ``norm_layers`` does not name.
        FedwcaError: see `check_labels` and `read_client_vectors`.
    """
    with warnings.catch_warnings(action="ignore"):
        try:
            check_labels(clusterer(signatures), signatures.clients, clusterer.name)
            with suppress(NotImplementedError):  # then no client can join
                read_client_vectors(clusterer, signatures)
        except UsageError as error:
            raise type(error)(f"clusterer {clusterer.name!r}: {error}") from error
    if len(signatures.measured) > 1:
        raise UsageError(
            f"clusterer {clusterer.name!r} reads moments of {' and of '.join(map(repr, signatures.measured))}; right "
            "are those of one of them, as clients upload no others"
        )
    if unnamed := [layers for layers in signatures.measured if layers != clusterer.norm_layers]:
        raise UsageError(
            f"clusterer {clusterer.name!r} reads moments of {unnamed[0]!r}, and its norm_layers gives "
            f"{clusterer.norm_layers!r}; right is {unnamed[0]!r}, so that clients upload them"
        )
