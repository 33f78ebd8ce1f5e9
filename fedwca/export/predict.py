"""Predicts class names and probabilities of images, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from fedwca.errors import CheckpointError
from fedwca.export.load_model import LoadedModel
from fedwca.export.read_images import LoadedImage, stack_images


@dataclass(frozen=True)
class Answer:
    """The prediction for one image."""

    file: str
    best: tuple[tuple[str, float], ...]
    """(class name, probability), the most probable first; empty if the image could not be read."""
    error: str = ""


def predict(model: LoadedModel, images: Iterable[LoadedImage], batch: int = 64, top: int = 1) -> Iterator[list[Answer]]:
    """Yield answers in the order of the images, one batch at a time.

    Args:
        model: see `fedwca.export.load_model`.
        images: see `fedwca.export.read_images.load_pictures`.
        batch: images per batch.
        top: classes per answer; at most as many as the model has.

    Raises:
        CheckpointError: logits are not finite, or not one for each class.
    """
    remaining = iter(images)
    while chunk := list(islice(remaining, batch)):
        pixels = [image.pixels for image in chunk if image.pixels is not None]
        best = iter(_named(model, stack_images(pixels), top) if pixels else [])
        yield [Answer(image.name, () if image.pixels is None else next(best), image.error) for image in chunk]


def _named(model: LoadedModel, images: Tensor, top: int) -> list[tuple[tuple[str, float], ...]]:
    classes = model.about.classes
    logits = model.logits(images)
    if logits.shape != (len(images), len(classes)) or not bool(logits.isfinite().all()):
        raise CheckpointError("the model gives values that are not finite, or not one for each of its classes")
    values, indices = logits.softmax(1).topk(min(top, len(classes)), dim=1)
    rows = zip(values.tolist(), indices.tolist(), strict=True)
    return [
        tuple((classes[i], value) for value, i in zip(row, class_indices, strict=True)) for row, class_indices in rows
    ]
