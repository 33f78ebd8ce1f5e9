"""Which kernels a run takes: those asked for, or what a few steps on its own images show before round 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from fedwca.config.run_config import RunConfig
from fedwca.core.training_settings import DROPPED
from fedwca.data.federation import ClientImages
from fedwca.engine.precision import matmul_precision
from fedwca.engine.stacked.tuning.benchmark import Found, benchmark_kernels, pick_kernels
from fedwca.engine.stacked.tuning.kernels import Kernels, default_kernels
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.clients_at_once import clients_at_once, fits_memory, trials_at_once
from fedwca.runs.engine_names import engine_name
from fedwca.runs.load_data import build_network


@dataclass(frozen=True)
class KernelChoice:
    """What was taken and why."""

    chosen: Kernels
    why: str
    measured: Found = field(default_factory=dict)
    """By candidate, see `fedwca.engine.stacked.tuning.benchmark.benchmark_kernels`; empty: nothing was measured."""

    @property
    def record(self) -> dict[str, Any]:
        """For the run folder."""
        return {"chosen": self.chosen, "why": self.why, "measured": self.measured}

    @property
    def sentence(self) -> str:
        """For a person."""
        told = [f"{name} {kernels_cell(own)}" for name, own in self.measured.items()]
        return f"{self.chosen} ({self.why}{': ' + ', '.join(told) if told else ''})"


def kernels_cell(own: dict[str, Any]) -> str:
    """One candidate's step, or why there is none."""
    return "failed" if "error" in own else f"{1000 * own['seconds']:.1f} ms a step"


def choose_kernels(
    config: RunConfig, methods: Sequence[tuple[Method, int]], classes: int, clients: Sequence[ClientImages]
) -> KernelChoice:
    """The kernels of a run.

    Only ``measure`` measures: what is found depends on what else the machine does, and with it the last digits of the
    numbers.

    Args:
        config: what is run; ``kernels`` as asked for.
        methods: with their rounds.
        classes: M.
        clients: unlabeled images of one federation.

    Raises:
        UsageError: kernels are asked for that the engine or the device has not.
    """
    if engine_name(config) != "stacked":
        if config.kernels not in ("auto", "eager"):
            raise UsageError(f"--kernels {config.kernels} needs --engine stacked; the loop has eager alone")
        return KernelChoice("eager", "the loop has no others")
    device = torch.device(resolve_device(config.device))
    if config.kernels == "graphs" and device.type != "cuda":
        raise UsageError(f"--kernels graphs needs a CUDA device, not {device}; take eager")
    if config.kernels == "measure":
        return measure_kernels(config, methods, classes, clients, device)
    if config.kernels == "auto":
        network = build_network(config, classes, pretrained=False)
        return KernelChoice(default_kernels(network, device), "the default")
    return KernelChoice(config.kernels, "asked for")


def restore_kernels(before: str, device: str) -> Kernels:
    """What a run goes on with that had some kernels before: the same, unless the device has become one without them.

    Raises:
        UsageError: they were dropped since, and others would give other last digits.
    """
    if before in DROPPED:
        raise UsageError(
            f"the run was begun with kernels {before}, which were dropped, since they were slower in all that was "
            "measured, so it cannot be continued; run it anew"
        )
    return cast(Kernels, "eager" if before == "graphs" and torch.device(device).type != "cuda" else before)


def measure_kernels(
    config: RunConfig,
    methods: Sequence[tuple[Method, int]],
    classes: int,
    clients: Sequence[ClientImages],
    device: torch.device,
) -> KernelChoice:
    """The quickest on the run's shapes: as many clients as go at a time, of all trials, a full batch of each; arguments
    as above.
    """
    network = build_network(config, classes, pretrained=False).to(device)
    count, batch = clients_at_once(config, network, clients), config.training.batch_size
    some = sorted(clients, key=lambda client: -len(client.train))[:count]
    batch = min(batch, len(some[-1].train))
    images = torch.stack([client.train[:batch] for client in some]).to(device)
    trials = trials_at_once(config, clients)
    images = images.repeat(trials, 1, 1, 1, 1)
    candidates: list[Kernels] = ["eager", "channels-last"]
    if fits_memory(config.model_copy(update={"kernels": "graphs"}), network, clients, count, trials):
        candidates.append("graphs")
    if batch < 2:
        return KernelChoice("eager", "clients have too few images to measure")
    mixes = any(method.pseudo_labeler.mixes for method, _ in methods)
    with matmul_precision(config.precision, device):
        found = benchmark_kernels(network, images, config.precision, candidates, mixes=mixes)
    if device.type == "cuda":
        # What was tried is gone; torch keeps its memory, and what is free decides how many clients go at a time.
        torch.cuda.empty_cache()
    return KernelChoice(pick_kernels(found), "measured", found)
