"""The engine and the kernels that a configuration means where it says ``auto`` or nothing."""

from __future__ import annotations

import torch

from fedwca.config.run_config import RunConfig
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.runs.choose_device import resolve_device


def engine_name(config: RunConfig) -> str:
    """The engine a configuration means: ``auto`` is the loop on a CPU, where stacking loses, and stacked on a GPU."""
    if config.engine != "auto":
        return config.engine
    return "loop" if torch.device(resolve_device(config.device)).type == "cpu" else "stacked"


def named_kernels(config: RunConfig) -> Kernels | None:
    """What a configuration names; None for ``auto`` and ``measure``, which `fedwca.runs.select_kernels` replaces."""
    return None if config.kernels == "auto" or config.kernels == "measure" else config.kernels
