"""Models of methods that have all domains at one place, trained on the clients' images of a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedwca.config.run_config import RunConfig
from fedwca.core.central import Central
from fedwca.data.metrics import Metrics
from fedwca.engine.interface import Engine
from fedwca.engine.precision import matmul_precision
from fedwca.federated.central_training import CentralImages, train_central
from fedwca.federated.source_model import StartModel
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.load_data import architecture


def central_model(
    central: Central,
    config: RunConfig,
    engine: Engine,
    metrics: Metrics,
    start: StartModel,
    seed: int,
    progress: Callable[[int, int], None] = lambda epoch, epochs: None,
) -> StartModel:
    """The model that a central method makes of a trial's training images, from the cache where it is there.

    Args:
        central: the method.
        config: how it trains, and where.
        engine: has the clients' images and labels.
        metrics: know domains, and the labels that an oracle is shown.
        start: the model to begin with.
        seed: of the trial.
        progress: told (epochs done, epochs).
    """
    members: dict[str, list[int]] = {}
    for client, name in enumerate(metrics.domains):
        members.setdefault(name, []).append(client)
    sources = [clients for clients in members.values() if engine.labels[clients[0]] is not None]
    targets = [k for clients in members.values() for k in clients if engine.labels[k] is None]

    def images(clients: list[int]) -> Tensor:
        return torch.cat([engine.images[k] for k in clients]).cpu()

    data = CentralImages(
        tuple(images(clients) for clients in sources),
        tuple(
            torch.cat([labels.cpu() for k in clients if (labels := engine.labels[k]) is not None])
            for clients in sources
        ),
        images(targets),
        torch.cat([metrics.training_truth(k) for k in targets]) if central.oracle else None,
    )
    if config.checkpoint is not None:  # whose digest is the file's, which says nothing of fields without weights
        start = replace(start, digest=f"{start.digest} {architecture(config).identity()}")
    training = config.central_training.as_long_as(config.training, config.rounds)
    device = resolve_device(config.device)
    with matmul_precision("fp32", device):  # it is kept for runs of any precision, as source models are
        return train_central(central, data, start, training, seed, device, progress)
