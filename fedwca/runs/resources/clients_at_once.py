"""How many clients are processed at the same time, as configured or as memory allows, and how many trials together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedwca.config.baselines import baseline, baseline_names
from fedwca.config.build_component import partition_of
from fedwca.config.method_spec import parse_method
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.engine.cpu_cores import count_cores
from fedwca.engine.embeddings import place_client_embeddings
from fedwca.engine.memory import Footprint, free_bytes, slice_size
from fedwca.errors import UsageError
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resources.engine_names import engine_name, named_kernels


def clients_at_once(config: RunConfig, network: Network, clients: Sequence[ClientImages]) -> int:
    """Clients processed at the same time: ``workers`` if set, else as many as the engine can.

    The loop takes one per CPU core, or one on a GPU. The stacked engine takes as many as fit into four fifths of the
    free memory beside the bank and the images, at least one.
    """
    device = torch.device(resolve_device(config.device))
    if config.workers is not None or engine_name(config) == "loop":
        return min(config.workers or (count_cores() if device.type == "cpu" else 1), len(clients))
    available = _usable_bytes(config)
    if available is None:
        return len(clients)
    fixed, per_client = _bytes(config, network, clients)
    return max(1, slice_size(available, fixed, per_client, len(clients)))


def trials_at_once(config: RunConfig, clients: Sequence[ClientImages]) -> int:
    """Trials that go through each round together: as many as configured, at most all of the run's; by default one.

    Fifteen on a GPU were 0.9 to 1.3 times as fast as one after the other (benchmarks/results/gpu/trials.json).

    Args:
        config: names engine and device.
        clients: unlabeled images of one federation.

    Raises:
        UsageError: several are configured, but the engine runs one after the other, or ``workers`` is too small.
    """
    requested = min(config.trials_at_once or 1, config.source_models * config.trials)
    if engine_name(config) != "stacked":
        if (config.trials_at_once or 1) > 1:
            raise UsageError(
                f"--trials-at-once {config.trials_at_once} needs --engine stacked; the loop takes trials one by one"
            )
        return 1
    if config.workers is not None and requested > 1 and config.workers < requested * len(clients):
        raise UsageError(
            f"--trials-at-once {requested} has {requested * len(clients)} clients at work at a time, more than "
            f"--workers {config.workers}; give one of the two"
        )
    return requested


def restore_trials_at_once(
    config: RunConfig, network: Network, clients: Sequence[ClientImages], original: int
) -> RunConfig:
    """A resumed run's configuration with its original number of trials at once, or one if that is no longer possible.

    Args:
        config: the run's configuration.
        network: a network of the source model's shape.
        clients: unlabeled images of one federation.
        original: trials that went through each round together when the run began.
    """
    possible = engine_name(config) == "stacked" and (
        original == 1
        or (
            (config.workers or original * len(clients)) >= original * len(clients)
            and fits_memory(config, network, clients, len(clients), original, config.trials_at_once is not None)
        )
    )
    return config.model_copy(update={"trials_at_once": original if possible else 1})


def fits_memory(
    config: RunConfig,
    network: Network,
    clients: Sequence[ClientImages],
    clients_per_trial: int,
    trials: int,
    whole: bool = False,
) -> bool:
    """Whether that many clients of each trial, processed at the same time, fit into the free memory.

    Four fifths of it count, or with ``whole`` all, as for a number that the user has set.
    """
    available = free_bytes(resolve_device(config.device)) if whole else _usable_bytes(config)
    fixed, per_client = _bytes(config, network, clients)
    return available is None or trials * (fixed + clients_per_trial * per_client) <= available


def footprint(config: RunConfig, network: Network) -> Footprint:
    """Memory of one model and of one image with the configured kernels."""
    recorded = engine_name(config) == "stacked" and named_kernels(config) == "graphs"
    return Footprint.of(network, recorded)


def _usable_bytes(config: RunConfig) -> int | None:
    """Four fifths of the bytes free on the device; None if the system does not report them."""
    free = free_bytes(resolve_device(config.device))
    return None if free is None else free * 4 // 5


def _bytes(config: RunConfig, network: Network, clients: Sequence[ClientImages]) -> tuple[int, int]:
    """Bytes that a federation takes in any case, and bytes of each client being processed."""
    cost = footprint(config, network)
    # Clients may share their images, as all have the same public ones.
    image_tensors = {id(images): images for client in clients for images in (client.train, client.test)}
    image_bytes = sum(images.numel() for images in image_tensors.values())
    embedding_bytes, _ = place_client_embeddings(network, clients)
    # Read from the configuration: a plugin that the run's methods need may not be installed when a run is opened.
    method_batch_sizes = [values.training.get("batch_size", 0) for values in config.methods.values()]
    batch = max([config.training.batch_size, *method_batch_sizes])
    # What is predicted at once is also differentiated at once by an adaptation.
    step = max(2 * batch, network.eval_batch_size) if _adapts(config) else 2 * batch
    per_client = max(cost.training(step), cost.evaluation(network.eval_batch_size))
    # The bank, the source model, and the server's rows before and after a round; where clients are alone, a row each.
    rows = 3 * len(clients) + 1
    return cost.model * rows + image_bytes + embedding_bytes, per_client


def _adapts(config: RunConfig) -> bool:
    """Whether a method may take an adaptation's steps on the images that it predicts; see `_bytes` on plugins."""
    specs, setting = [parse_method(text) for text in config.baselines], partition_of(config).setting
    named = [spec.changes.get("adaptation") for spec in specs]
    stated = [baseline(spec.head, setting).adaptation for spec in specs if spec.head in baseline_names(setting)]
    return any([config.adaptation, *named, *stated])
