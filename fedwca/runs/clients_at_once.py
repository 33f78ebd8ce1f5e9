"""How many clients are at work at a time, as asked or as many as fit into memory, and how many trials together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.engine.cpu_cores import count_cores
from fedwca.engine.embeddings import place_embeddings
from fedwca.engine.memory import Footprint, free_bytes, slice_size
from fedwca.errors import UsageError
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.engine_names import engine_name, named_kernels
from fedwca.runs.load_data import build_network


def clients_at_once(config: RunConfig, network: Network, clients: Sequence[ClientImages]) -> int:
    """Clients at the same time: one a core or device for the loop; for the stacked engine the slice that fits.

    The slice takes four fifths of what is free beside the bank and the images, at least one client.
    """
    device = torch.device(resolve_device(config.device))
    if config.workers is not None or engine_name(config) == "loop":
        return min(config.workers or (count_cores() if device.type == "cpu" else 1), len(clients))
    there = _usable_bytes(config)
    if there is None:
        return len(clients)
    fixed, each = _bytes(config, network, clients)
    return max(1, slice_size(there, fixed, each, len(clients)))


def trials_at_once(config: RunConfig, clients: Sequence[ClientImages]) -> int:
    """Federations that go through each round together, of as many as the configuration has: those it asks for, or one.

    Fifteen on a GPU were 0.9 to 1.3 times as fast as one after the other (benchmarks/results/gpu/trials.json).

    Args:
        config: names engine and device.
        clients: unlabeled images of one federation.

    Raises:
        UsageError: several are asked for, and the engine takes one after the other, or ``workers`` has no room.
    """
    asked = min(config.trials_at_once or 1, config.source_models * config.trials)
    if engine_name(config) != "stacked":
        if (config.trials_at_once or 1) > 1:
            raise UsageError(
                f"--trials-at-once {config.trials_at_once} needs --engine stacked; the loop takes trials one by one"
            )
        return 1
    if config.workers is not None and asked > 1 and config.workers < asked * len(clients):
        raise UsageError(
            f"--trials-at-once {asked} has {asked * len(clients)} clients at work at a time, more than --workers "
            f"{config.workers}; give one of the two"
        )
    return asked


def restore_trials_at_once(config: RunConfig, classes: int, clients: Sequence[ClientImages], before: int) -> RunConfig:
    """The configuration of a run that goes on, with the number of trials that went together before, if it still can be.

    Args:
        config: as it was asked for.
        classes: M.
        clients: unlabeled images of one federation.
        before: trials that went together.
    """
    network, number = build_network(config, classes, pretrained=False), before
    if engine_name(config) != "stacked" or (
        before > 1 and config.trials_at_once is None and not fits_memory(config, network, clients, len(clients), before)
    ):
        number = 1
    return config.model_copy(update={"trials_at_once": number})


def fits_memory(config: RunConfig, network: Network, clients: Sequence[ClientImages], number: int, trials: int) -> bool:
    """Whether ``number`` clients of each of some trials can be at work at a time, in four fifths of what is free."""
    there = _usable_bytes(config)
    fixed, each = _bytes(config, network, clients)
    return there is None or trials * (fixed + number * each) <= there


def footprint(config: RunConfig, network: Network) -> Footprint:
    """What one model and one image cost with a configuration's kernels."""
    recorded = engine_name(config) == "stacked" and named_kernels(config) == "graphs"
    return Footprint.of(network, recorded)


def _usable_bytes(config: RunConfig) -> int | None:
    """Four fifths of what is free on the device; None where the system does not say."""
    there = free_bytes(resolve_device(config.device))
    return None if there is None else there * 4 // 5


def _bytes(config: RunConfig, network: Network, clients: Sequence[ClientImages]) -> tuple[int, int]:
    """What a federation takes in any case, and each of its clients at work."""
    one = footprint(config, network)
    stored = sum(client.train.numel() + client.test.numel() for client in clients)
    kept, _ = place_embeddings(network, sum(len(client.train) + len(client.test) for client in clients))
    # By what the run says: a finished one is read where a plugin of its methods is not installed.
    own = [values.training.get("batch_size", 0) for values in config.methods.values()]
    batch = max([config.training.batch_size, *own])
    each = max(one.training(2 * batch), one.evaluation(network.chunk))
    return one.model * 2 * len(clients) + stored + kept, each
