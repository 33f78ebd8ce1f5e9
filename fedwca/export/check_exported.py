"""An exported model is read back, and what it says compared with the original, before its file is kept."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fedwca.core.model_description import ModelDescription
from fedwca.engine.randomness import fold_key, uniform
from fedwca.errors import FedwcaError
from fedwca.export.inference import InferenceModel
from fedwca.export.load_model import open_model

TOLERANCE = 1e-4
"""Largest difference between a file's logits and the model's, in units of the largest logit (at least 1)."""


def comparison_images(side: int, images: int) -> Tensor:
    """Images ``[N, 3, side, side]`` uint8 to compare models on: the first black, the second white, then noise."""
    counters = torch.arange(images * 3 * side * side).view(images, 3, side, side)
    pixels = (uniform(fold_key(["probe"]), counters) * 256).to(torch.uint8)
    for index, shade in enumerate((0, 255)[:images]):
        pixels[index] = shade
    return pixels


def compare_outputs(served: InferenceModel, about: ModelDescription, file: Path, path: Path) -> None:
    """Read a file back and compare its logits with the model's, for two sizes of a batch.

    Raises:
        FedwcaError: they differ.
    """
    opened = open_model(file, trust_code=True)  # written a moment ago, by this process
    for images in (comparison_images(about.side, 1), comparison_images(about.side, 5)):
        with torch.no_grad():
            right = served(images)
        apart = float((opened.logits(images) - right).abs().max()) / max(1.0, float(right.abs().max()))
        if not apart <= TOLERANCE:
            raise FedwcaError(f"{path}: the file's outputs are {apart:.2g} away from the model's; it was not kept")
