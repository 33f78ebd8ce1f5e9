"""Checks an exported file before it is kept: reads it back and compares its logits with the original model's."""

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
"""Largest accepted difference of logits, as a share of the model's largest absolute logit (at least 1)."""


def comparison_images(side: int, images: int) -> Tensor:
    """Return images ``[N, 3, side, side]`` uint8 to compare models on: one black, one white, the others noise."""
    counters = torch.arange(images * 3 * side * side).view(images, 3, side, side)
    pixels = (uniform(fold_key(["probe"]), counters) * 256).to(torch.uint8)
    for index, shade in enumerate((0, 255)[:images]):
        pixels[index] = shade
    return pixels


def compare_outputs(model: InferenceModel, description: ModelDescription, file: Path, path: Path) -> None:
    """Read a file back and compare its logits with the model's, for two batch sizes.

    Args:
        model: the original.
        description: the model's description.
        file: the file to check.
        path: the path that the file will have, for messages.

    Raises:
        FedwcaError: the logits differ by more than `TOLERANCE`.
    """
    reloaded = open_model(file, trust_code=True)  # this process has just written it
    for images in (comparison_images(description.side, 1), comparison_images(description.side, 5)):
        with torch.no_grad():
            expected = model(images)
        difference = float((reloaded.logits(images) - expected).abs().max()) / max(1.0, float(expected.abs().max()))
        if not difference <= TOLERANCE:
            raise FedwcaError(f"{path}: the file's outputs are {difference:.2g} away from the model's; it was not kept")
