"""A dry run of a run's components before training, so that what would fail after it fails now."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace

import torch

from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import RunConfig
from fedwca.core.clusterer import Clusterer
from fedwca.core.grouping import check_labels
from fedwca.core.network import Network
from fedwca.data.dataset import FederatedDataset
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.precision import check_precision
from fedwca.engine.randomness import draw_changes
from fedwca.errors import UsageError
from fedwca.federated.assign_clusters import read_client_vectors
from fedwca.federated.method import Method
from fedwca.federated.source_model import load_source
from fedwca.runs.check_model import check_model
from fedwca.runs.load_data import architecture
from fedwca.runs.records.round_record import check_report_names
from fedwca.runs.resources.choose_device import resolve_device


def dry_run_components(
    config: RunConfig, methods: list[tuple[Method, int]], network: Network, dataset: FederatedDataset, clients: int
) -> None:
    """Check the model, and call every clusterer on dummy data, so that a misfit is found before training.

    Args:
        config: of the run.
        methods: of the run, with their rounds.
        network: of the run; without a checkpoint its backbone is pretrained as the source model's will be.
        dataset: whose classes the model tells apart.
        clients: K, how many clients the run has; a clusterer may need that many, or know them.

    Raises:
        CheckpointError: the user's own source model is missing or does not fit the architecture.
        InvalidConfig: a clusterer needs a layer that the model does not have.
        UsageError: the device does not support the requested precision; or see `check_report_names`.
        FedwcaError: see `check_model` and `try_clusterer`.

    Warns:
        UserWarning: the backbone is frozen and a clusterer selects a layer by number, which then counts from the
            bottleneck.
    """
    model = architecture(config)
    check_precision(config.precision, network.class_vectors.dtype, torch.device(resolve_device(config.device)))
    if config.checkpoint is not None:
        load_source(config.checkpoint, dataset.classes, model)
    check_model(network, model.name)
    # Probes are ordinary clusterers; which method they are put into does not matter here.
    probes = map(registry_of("clusterer").build, config.probes)
    methods = [*methods, *((replace(methods[0][0], clusterer=probe), 1) for probe in probes)]
    layout = Layout.of(network)
    source = layout.read(network)
    bank = draw_changes(clients, layout.width, source.dtype).mul_(1e-3).add_(source)  # as large as the run's
    truth = torch.zeros(clients, dtype=torch.int64)
    shape = (clients, 2, 3, model.stored_side, model.stored_side)
    images = torch.arange(clients).view(-1, 1, 1, 1, 1).expand(shape).to(torch.uint8)
    clusterers = [method.clusterer for method, rounds in methods if rounds and method.clusterer is not None]
    if network.backbone.frozen and any(clusterer.layer_number is not None for clusterer in clusterers):
        warnings.warn(
            "the backbone is frozen, so layers are counted from the bottleneck on: signature 1 is the bottleneck",
            stacklevel=2,
        )
    for method, rounds in methods:
        check_report_names(method.aggregator)
        if method.clusterer is not None and rounds:
            visible_truth = truth if method.clusterer.oracle else None
            signatures = BankSignatures(bank, layout, source, visible_truth, list(images), network=network)
            try_clusterer(method.clusterer, signatures)


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
