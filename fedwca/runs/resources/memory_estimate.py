"""Memory of a run: the estimate and the check made before round 1, and the record of what it took."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from fedwca.config.build_component import architecture
from fedwca.config.run_config import RunConfig
from fedwca.core.central import Central
from fedwca.core.network import Network
from fedwca.data.federation import Federation
from fedwca.engine.embeddings import place_client_embeddings
from fedwca.engine.memory import Footprint, MemoryEstimate, estimate_memory, human_size
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import UsageError
from fedwca.federated.extra_networks import changes_network, grow_network
from fedwca.federated.method import Method
from fedwca.runs.resources.clients_at_once import clients_at_once, footprint, trials_at_once


def estimate_run(
    config: RunConfig, methods: Sequence[tuple[Method, int]], plain: Network, federation: Federation
) -> MemoryEstimate:
    """Peak memory of a run on its device.

    The server keeps one row per client if a method keeps clients separate, else one per target domain, or as many as
    its aggregator says.

    Args:
        config: of the run.
        methods: with their number of rounds.
        plain: a network of the source model's shape, without extra networks.
        federation: of one trial.
    """
    model = architecture(config)
    shapes = [plain, *(shape_network(plain, method, len(model.size_variants)) for method, _ in methods)]
    network = max(shapes, key=lambda shape: Layout.of(shape).width)
    rows = max(count_server_rows(method, federation) if rounds else 1 for method, rounds in methods)
    workers = clients_at_once(config, network, federation.clients)
    sizes = [len(client.train) + len(client.test) for client in federation.all_clients]
    # A step holds its images and at most as many mixed ones.
    batch = max(method.largest_batch(config.training) for method, _ in methods)
    step = 2 * min(batch, max(len(client.train) for client in federation.clients))
    public_objectives = [
        method.public_objective for method, rounds in methods if rounds and method.public_objective is not None
    ]
    public_images = 0 if federation.public_images is None or not public_objectives else len(federation.public_images)
    step = max([step, *(min(objective.batch_size, public_images) for objective in public_objectives)])
    chunk = min(network.eval_batch_size, max([*sizes, public_images]))
    if any(method.adaptation is not None and not method.adaptation.generates_models for method, _ in methods):
        step = max(step, chunk)  # the images that a model predicts, it also takes steps on
    trials = trials_at_once(config, federation.clients)
    if trials > 1:
        workers = len(federation)
    cost = footprint(config, network)
    embedding_bytes, _ = _place_embeddings(network, federation)
    per_trial = estimate_memory(cost, sizes, model.stored_side, rows, step, chunk, workers, embedding_bytes)
    if public_images:
        classes = plain.classifier.out_features
        per_trial = per_trial.plus(
            estimate_public(cost, federation, len(model.size_variants), model.stored_side, classes)
        )
    needed = per_trial.times(trials)
    if centrals := [method.central for method, _ in methods if method.central is not None]:
        needed = estimate_central(needed, cost, centrals, config.central_training.batch_size, federation)
    return needed


def estimate_central(
    needed: MemoryEstimate, cost: Footprint, centrals: Sequence[Central], batch: int, federation: Federation
) -> MemoryEstimate:
    """An estimate that also counts central training: before its rounds, one model on a copy of the training images.

    Args:
        needed: without central training.
        cost: memory cost of the network.
        centrals: central methods of the run.
        batch: images of each domain in a step, or of all together if they are pooled.
        federation: of one trial.
    """
    domains = len(set(federation.metrics.domains))
    work = max(cost.training(batch * (1 if central.pooled else domains)) for central in centrals)
    copies = sum(client.train.numel() for client in federation.clients)
    return replace(needed, work=max(needed.work, work), images=needed.images + copies)


def estimate_public(cost: Footprint, federation: Federation, sizes: int, side: int, classes: int) -> MemoryEstimate:
    """Additional memory for learning from public images.

    Two engines hold these images once each: one for the clients that train, and one for newcomers, which also holds a
    trained and an initial model of each size. The server holds all clients' predictions of this and the previous round.

    Args:
        cost: memory cost of the network.
        federation: has public images.
        sizes: number of model sizes.
        side: height and width of a stored image in pixels.
        classes: M.
    """
    return MemoryEstimate(
        bank=cost.model * (len(federation) + 2 * sizes),
        rows=2 * VALUE * count_predictions(federation, classes),
        images=2 * len(federation.public_images if federation.public_images is not None else ()) * 3 * side**2,
        work=0,
    )


VALUE = 4
"""Bytes of one value, a float32."""


def count_predictions(federation: Federation, classes: int) -> int:
    """Values that all clients upload about public images: logits before and after an adaptation step."""
    return 0 if federation.public_images is None else 2 * len(federation) * len(federation.public_images) * classes


def count_server_rows(method: Method, federation: Federation) -> int:
    """Number of rows that the server keeps with a method."""
    return method.aggregator.count_rows(len(federation), len(set(federation.metrics.domains)))


def shape_network(network: Network, method: Method, sizes: int = 1) -> Network:
    """A network with a method's extra networks, on the meta device: networks that generate models are very large."""
    if not any(map(changes_network, method.trained)):
        return network
    with torch.device("meta"):
        return grow_network(copy.deepcopy(network).to("meta"), method.trained, 0, sizes=sizes)


def _place_embeddings(network: Network, federation: Federation) -> tuple[int, int]:
    """Bytes of all clients' embeddings in memory and on the disk; newcomers have an engine of their own."""
    newcomers = [client for group in federation.newcomers for client in group.clients]
    places = (place_client_embeddings(network, clients) for clients in (federation.clients, newcomers))
    in_memory, on_disk = zip(*places, strict=True)
    return sum(in_memory), sum(on_disk)


def describe_embeddings(network: Network, federation: Federation) -> str:
    """A sentence on where a frozen backbone's features are kept and which passes that saves; empty if none are kept."""
    images = sum(len(client.train) + len(client.test) for client in federation.all_clients)
    places = dict(zip(("in memory", "on the disk"), _place_embeddings(network, federation), strict=True))
    if not any(places.values()):
        return ""
    location = " and ".join(f"{place} ({human_size(size)})" for place, size in places.items() if size)
    saved_passes = "evidence and evaluation" if network.augments else "all passes over plain images"
    return f"features of {images:,} images are computed once and kept {location}, for {saved_passes}"


SMALLER = {
    "bank": "fewer --clients or a smaller --model",
    "rows": "fewer --clients or a smaller --model",
    "images": "fewer --samples, or a smaller --set model.side where the model has one",
    "work": "a smaller --batch-size or --workers 1",
    "embeddings": "fewer --samples",
}


def check_run_fits(needed: MemoryEstimate, available: int | None, device: str, trials: int = 1) -> None:
    """Check that a run fits into the available memory; nothing is checked if that is unknown.

    Raises:
        UsageError: it does not fit; the message says how much it needs, how much is free, and which option reduces it.
    """
    if available is None or needed.total <= available:
        return
    parts = asdict(needed)
    largest = max(parts, key=lambda name: parts[name])
    raise UsageError(
        f"this run needs about {human_size(needed.total)} of memory on {device}, and {human_size(available)} are free; "
        f"most of it, {human_size(parts[largest])}, is {WHAT[largest]}: take {SMALLER[largest]}"
        + (f", or fewer --trials-at-once than {trials}" if trials > 1 else "")
    )


WHAT = {
    "bank": "the clients' models",
    "rows": "the server's models",
    "images": "the clients' images",
    "work": "models at work",
    "embeddings": "the frozen backbone's features",
}


def describe_memory(needed: MemoryEstimate) -> str:
    """The estimate as text, in total and by part."""
    bytes_by_part = {name: count for name, count in asdict(needed).items() if count or name != "embeddings"}
    parts = ", ".join(f"{WHAT[name]} {human_size(count)}" for name, count in bytes_by_part.items())
    return f"about {human_size(needed.total)} ({parts})"


def memory_record(needed: MemoryEstimate, device: str, measured: int | None) -> dict[str, Any]:
    """The contents of ``memory.json``: the estimate by part and the measured growth, in bytes.

    The growth is None before the end, or if it is unknown.
    """
    estimated = {**asdict(needed), "total": needed.total}
    return {"estimated": estimated, "measured": measured, "device": torch.device(device).type}
