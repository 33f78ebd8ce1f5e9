"""Chooses a run's kernels: those requested, the default, or the fastest in a short measurement before round 1."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.engine.precision import matmul_precision
from fedwca.engine.stacked.tuning.benchmark import Found, benchmark_kernels, pick_kernels
from fedwca.engine.stacked.tuning.kernels import Kernels, default_kernels
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.runs.resources.choose_device import resolve_device
from fedwca.runs.resources.clients_at_once import clients_at_once, fits_memory, trials_at_once
from fedwca.runs.resources.engine_names import engine_name


@dataclass(frozen=True)
class KernelChoice:
    """The chosen kernels and the reason."""

    chosen: Kernels
    why: str
    measured: Found = field(default_factory=dict)
    """Results by candidate, see `fedwca.engine.stacked.tuning.benchmark.benchmark_kernels`; empty: not measured."""

    @property
    def record(self) -> dict[str, Any]:
        """The entry for ``environment.json``."""
        return {"chosen": self.chosen, "why": self.why, "measured": self.measured}

    @property
    def sentence(self) -> str:
        """The choice as text for the user."""
        timings = [
            f"{name} failed" if "error" in measurement else f"{name} {1000 * measurement['seconds']:.1f} ms a step"
            for name, measurement in self.measured.items()
        ]
        return f"{self.chosen} ({self.why}{': ' + ', '.join(timings) if timings else ''})"


def choose_kernels(
    config: RunConfig, methods: Sequence[tuple[Method, int]], network: Network, clients: Sequence[ClientImages]
) -> KernelChoice:
    """Choose the kernels of a run.

    Only ``measure`` measures, since its choice, and with it the last digits of results, depends on the machine's load.

    Args:
        config: the run's configuration, with ``kernels`` as requested.
        methods: methods with their number of rounds.
        network: a network of the source model's shape.
        clients: unlabeled images of one federation.

    Raises:
        UsageError: the engine or the device does not support the requested kernels.
    """
    if engine_name(config) != "stacked":
        if config.kernels not in ("auto", "eager"):
            raise UsageError(f"--kernels {config.kernels} needs --engine stacked; the loop has eager alone")
        return KernelChoice("eager", "the loop has no others")
    device = torch.device(resolve_device(config.device))
    if config.kernels == "graphs" and device.type != "cuda":
        raise UsageError(f"--kernels graphs needs a CUDA device, not {device}; take eager")
    if config.kernels == "measure":
        return measure_kernels(config, methods, network, clients, device)
    if config.kernels == "auto":
        return KernelChoice(default_kernels(network, device), "the default")
    return KernelChoice(config.kernels, "asked for")


def restore_kernels(original: str, device: str) -> Kernels:
    """The kernels of a resumed run: the original ones, or eager if the device no longer supports graphs."""
    return cast(Kernels, "eager" if original == "graphs" and torch.device(device).type != "cuda" else original)


def measure_kernels(
    config: RunConfig,
    methods: Sequence[tuple[Method, int]],
    network: Network,
    clients: Sequence[ClientImages],
    device: torch.device,
) -> KernelChoice:
    """Choose the fastest kernels on the run's shapes; arguments as for `choose_kernels`.

    A step takes one batch of each of as many clients as are processed at the same time, of all trials at once.
    """
    network = copy.deepcopy(network).to(device)
    count, batch = clients_at_once(config, network, clients), config.training.batch_size
    largest_clients = sorted(clients, key=lambda client: -len(client.train))[:count]
    batch = min(batch, len(largest_clients[-1].train))
    images = torch.stack([client.train[:batch] for client in largest_clients]).to(device)
    trials = trials_at_once(config, clients)
    images = images.repeat(trials, 1, 1, 1, 1)
    candidates: list[Kernels] = ["eager", "channels-last"]
    if fits_memory(config.model_copy(update={"kernels": "graphs"}), network, clients, count, trials):
        candidates.append("graphs")
    if batch < 2:
        return KernelChoice("eager", "clients have too few images to measure")
    mixes = any(method.pseudo_labeler.mixes for method, _ in methods)
    with matmul_precision(config.precision, device):
        measurements = benchmark_kernels(network, images, config.precision, candidates, mixes=mixes)
    if device.type == "cuda":
        # Return torch's cached memory: the free memory decides how many clients are processed at the same time.
        torch.cuda.empty_cache()
    return KernelChoice(pick_kernels(measurements), "measured", measurements)
