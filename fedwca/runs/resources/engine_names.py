"""The engine and the kernels that a configuration selects, with ``auto`` resolved for the engine."""

from __future__ import annotations

import torch

from fedwca.config.run_config import RunConfig
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.runs.resources.choose_device import resolve_device


def engine_name(config: RunConfig) -> str:
    """Name of the engine; ``auto`` is the loop on a CPU, where stacking is slower, and stacked on a GPU."""
    if config.engine != "auto":
        return config.engine
    return "loop" if torch.device(resolve_device(config.device)).type == "cpu" else "stacked"


def named_kernels(config: RunConfig) -> Kernels | None:
    """The kernels a configuration names; None for ``auto`` and ``measure``, see `select_kernels`."""
    return None if config.kernels == "auto" or config.kernels == "measure" else config.kernels
