"""Before round 1: what a run will need of memory, what is there, which option makes it less; then what it took."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import Federation
from fedwca.engine.embeddings import place_embeddings
from fedwca.engine.memory import Footprint, MemoryEstimate, estimate_memory, human_size
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import UsageError
from fedwca.federated.extra_networks import changes_network, grow_network
from fedwca.federated.method import Method
from fedwca.runs.clients_at_once import clients_at_once, footprint, trials_at_once
from fedwca.runs.load_data import architecture, build_network


def estimate_run(
    config: RunConfig, methods: Sequence[tuple[Method, int]], classes: int, federation: Federation
) -> MemoryEstimate:
    """What the plain engine will hold on the run's device at its peak.

    The server keeps a row a client where a method keeps every client alone, else one a target domain, or what its
    aggregator says.
    """
    model = architecture(config)
    plain = build_network(config, classes, pretrained=False)
    shapes = [plain, *(shape_network(plain, method, len(model.variants)) for method, _ in methods)]
    network = max(shapes, key=lambda one: Layout.of(one).width)
    rows = max(count_server_rows(method, federation) if rounds else 1 for method, rounds in methods)
    workers = clients_at_once(config, network, federation.clients)
    sizes = [len(client.train) + len(client.test) for client in federation.everybody]
    # A step holds its images, and up to as many that are mixed with others.
    batch = max(method.largest_batch(config.training) for method, _ in methods)
    step = 2 * min(batch, max(len(client.train) for client in federation.clients))
    learns = [method.public_objective for method, rounds in methods if rounds and method.public_objective is not None]
    public = 0 if federation.public is None or not learns else len(federation.public)
    step = max([step, *(min(objective.batch_size, public) for objective in learns)])
    chunk = min(network.chunk, max([*sizes, public]))
    trials = trials_at_once(config, federation.clients)
    if trials > 1:
        workers = len(federation)
    one = footprint(config, network)
    kept, _ = place_embeddings(network, sum(sizes))
    alone = estimate_memory(one, sizes, model.stored, rows, step, chunk, workers, kept)
    if public:
        alone = alone.plus(estimate_public(one, federation, len(model.variants), model.stored, classes))
    return alone.times(trials)


def estimate_public(one: Footprint, federation: Federation, sizes: int, side: int, classes: int) -> MemoryEstimate:
    """What learning from public images holds beside the rest.

    Two engines have these images, once each: one for the clients that train, one for new ones, with a model of each
    size and the rows that they began as. The server has everybody's predictions, and those of the round before.

    Args:
        one: of the network.
        federation: has public images.
        sizes: of models.
        side: height and width of an image as it is kept.
        classes: M.
    """
    return MemoryEstimate(
        bank=one.model * (len(federation) + 2 * sizes),
        rows=2 * VALUE * count_predictions(federation, classes),
        images=2 * len(federation.public if federation.public is not None else ()) * 3 * side**2,
        work=0,
    )


VALUE = 4
"""Bytes of a number."""


def count_predictions(federation: Federation, classes: int) -> int:
    """Numbers that all clients upload of public images: logits of both kinds, before and after a step."""
    return 0 if federation.public is None else 2 * len(federation) * len(federation.public) * classes


def count_server_rows(method: Method, federation: Federation) -> int:
    """Rows that a method's server keeps."""
    return method.aggregator.count_rows(len(federation), len(set(federation.metrics.domains)))


def shape_network(network: Network, method: Method, sizes: int = 1) -> Network:
    """A network with what a method puts beside it, in shapes alone; what generates a model is a hundred times it."""
    if not any(map(changes_network, method.trained)):
        return network
    with torch.device("meta"):
        return grow_network(copy.deepcopy(network).to("meta"), method.trained, 0, sizes=sizes)


def describe_embeddings(config: RunConfig, classes: int, federation: Federation) -> str:
    """Where the frozen backbone's features are kept, and which steps are spared its work; empty where it is trained."""
    network = build_network(config, classes, pretrained=False)
    images = sum(len(client.train) + len(client.test) for client in federation.everybody)
    memory, disk = place_embeddings(network, images)
    if not memory + disk:
        return ""
    where = f"in memory ({human_size(memory)})" if memory else f"on the disk ({human_size(disk)})"
    spared = "evidence and evaluation" if network.augments else "all passes over plain images"
    return f"features of {images:,} images are computed once and kept {where}, for {spared}"


SMALLER = {
    "bank": "fewer --clients or a smaller --model",
    "rows": "fewer --clients or a smaller --model",
    "images": "fewer --samples, or a smaller --set model.side where the model has one",
    "work": "a smaller --batch-size or --workers 1",
    "embeddings": "fewer --samples",
}


def check_run_fits(needed: MemoryEstimate, there: int | None, device: str, trials: int = 1) -> None:
    """Nothing where a run fits.

    Raises:
        UsageError: it does not; says what it needs, what there is, and what makes it smaller.
    """
    if there is None or needed.total <= there:
        return
    parts = asdict(needed)
    most = max(parts, key=lambda name: parts[name])
    raise UsageError(
        f"this run needs about {human_size(needed.total)} of memory on {device}, and {human_size(there)} are free; "
        f"most of it, {human_size(parts[most])}, is {WHAT[most]}: take {SMALLER[most]}"
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
    """The estimate, part by part."""
    there = {name: count for name, count in asdict(needed).items() if count or name != "embeddings"}
    parts = ", ".join(f"{WHAT[name]} {human_size(count)}" for name, count in there.items())
    return f"about {human_size(needed.total)} ({parts})"


def memory_record(needed: MemoryEstimate, device: str, measured: int | None) -> dict[str, Any]:
    """The estimate by part beside what was measured, None before the end; in bytes."""
    estimated = {**asdict(needed), "total": needed.total}
    return {"estimated": estimated, "measured": measured, "device": torch.device(device).type}
