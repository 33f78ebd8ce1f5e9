"""Start models that a method trains centrally, on the pooled images of a trial's clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedwca.config.build_component import architecture
from fedwca.config.run_config import RunConfig
from fedwca.core.central import Central
from fedwca.data.metrics import Metrics
from fedwca.engine.interface import Engine
from fedwca.federated.central_steps import CentralImages
from fedwca.federated.central_training import train_central
from fedwca.federated.source_model import StartModel
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.watch_draws import watch_draws


def central_model(
    central: Central,
    config: RunConfig,
    engine: Engine,
    metrics: Metrics,
    start: StartModel,
    seed: int,
    progress: Callable[[int, int], None],
) -> StartModel:
    """The model that a central method trains on a trial's training images, read from the cache if it is there.

    Args:
        central: the method.
        config: training settings and device.
        engine: holds the clients' images and labels.
        metrics: hold the true domains, and the labels that only an oracle method may read.
        start: the model that training starts from.
        seed: random seed of the trial.
        progress: called with (epochs done, epochs).
    """
    clients_by_domain: dict[str, list[int]] = {}
    for client, domain in enumerate(metrics.domains):
        clients_by_domain.setdefault(domain, []).append(client)
    sources = [clients for clients in clients_by_domain.values() if engine.labels[clients[0]] is not None]
    targets = [k for clients in clients_by_domain.values() for k in clients if engine.labels[k] is None]

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
    # A checkpoint's digest is that of its file, which does not cover architecture fields that hold no weights.
    if config.checkpoint is not None:
        start = replace(start, digest=f"{start.digest} {architecture(config).identity()}")
    training = config.central_training.as_long_as(config.training, config.rounds)
    device = resolve_device(config.device)
    with watch_draws(f"central method {central.name!r}"):
        return train_central(central, data, start, training, seed, device, progress)
