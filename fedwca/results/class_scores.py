"""Accuracy and F1 of each class, and macro F1, from a confusion matrix as plain numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedwca.core.mean import mean

Confusion = Iterable[Sequence[int]]
"""Entries ``(true class, predicted class, images)``; missing pairs count 0 images, repeated pairs are added up."""


@dataclass(frozen=True)
class ClassScore:
    """Counts of one class over a set of test images."""

    images: int
    """Images of the class."""
    predicted: int
    """Images predicted as the class."""
    right: int
    """Images of the class that are predicted as it."""

    @property
    def accuracy(self) -> float:
        """Percent of the class's images that are predicted right (recall); NaN if it has no images."""
        return 100 * self.right / self.images if self.images else math.nan

    @property
    def f1(self) -> float:
        """Harmonic mean of recall and precision in percent; NaN if no image is of the class or predicted as it."""
        total = self.images + self.predicted
        return 200 * self.right / total if total else math.nan


def name_class(label: int, classes: Sequence[str]) -> str:
    """The name of a class; its number if ``classes`` has no name for it.

    >>> name_class(1, ["cat", "dog"]), name_class(2, ["cat", "dog"])
    ('dog', '2')
    """
    return classes[label] if label < len(classes) else str(label)


def score_classes(confusion: Confusion, classes: int = 0) -> dict[int, ClassScore]:
    """Scores by class number, for the first ``classes`` classes and all others that occur.

    >>> score_classes([(0, 0, 3), (0, 1, 1), (1, 1, 2)])[0]
    ClassScore(images=4, predicted=3, right=3)
    """
    images, predicted, right = Counter[int](), Counter[int](), Counter[int]()
    for true_class, predicted_class, count in confusion:
        images[true_class] += count
        predicted[predicted_class] += count
        right[true_class] += count * (true_class == predicted_class)
    labels = sorted({*range(classes), *images, *predicted})
    return {label: ClassScore(images[label], predicted[label], right[label]) for label in labels}


def macro_f1(confusion: Confusion) -> float:
    """Mean F1 in percent over the classes that occur as a true or predicted class; NaN without images.

    >>> round(macro_f1([(0, 0, 3), (0, 1, 1), (1, 1, 2)]), 2)  # (6/7 + 4/5) / 2
    82.86
    """
    return mean(score.f1 for score in score_classes(confusion).values())
