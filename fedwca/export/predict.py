"""Class names and probabilities for images, batch after batch."""

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
    """What a model says of one image."""

    file: str
    best: tuple[tuple[str, float], ...]
    """(class name, probability), the most probable first; empty where the image could not be read."""
    error: str = ""


def predict(model: LoadedModel, found: Iterable[LoadedImage], batch: int = 64, top: int = 1) -> Iterator[list[Answer]]:
    """Answers in the order of the images, a batch at a time.

    Args:
        model: see `fedwca.export.load_model`.
        found: see `fedwca.export.read_images.load_pictures`.
        batch: images at once.
        top: classes to name; no more than there are.
    """
    waiting = iter(found)
    while some := list(islice(waiting, batch)):
        pixels = [picture.pixels for picture in some if picture.pixels is not None]
        best = iter(_named(model, stack_images(pixels), top) if pixels else [])
        yield [Answer(p.name, () if p.pixels is None else next(best), p.error) for p in some]


def _named(model: LoadedModel, images: Tensor, top: int) -> list[tuple[tuple[str, float], ...]]:
    classes = model.about.classes
    logits = model.logits(images)
    if logits.shape != (len(images), len(classes)) or not bool(logits.isfinite().all()):
        raise CheckpointError("the model gives values that are not finite, or not one for each of its classes")
    values, indices = logits.softmax(1).topk(min(top, len(classes)), dim=1)
    rows = zip(values.tolist(), indices.tolist(), strict=True)
    return [tuple((classes[i], value) for value, i in zip(row, which, strict=True)) for row, which in rows]
