"""Where baselines and presets lie, and what they are called; reads folders only."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path


def baseline_folder() -> Traversable:
    """``baselines/``: inside an installed package, or beside the package in a checkout."""
    packaged = resources.files("fedwca") / "_baselines"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "baselines"


def baseline_names() -> list[str]:
    """Names of all baselines, sorted."""
    return _stems(baseline_folder())


def preset_folder() -> Traversable:
    """The presets that ship with fedwca."""
    return resources.files("fedwca.config") / "presets"


def preset_names() -> list[str]:
    """Names of all presets, sorted."""
    return _stems(preset_folder())


def _stems(folder: Traversable) -> list[str]:
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
