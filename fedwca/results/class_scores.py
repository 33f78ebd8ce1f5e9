"""What a confusion matrix says of each class, and of all of them; plain numbers in and out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedwca.core.mean import mean

Confusion = Iterable[Sequence[int]]
"""``(true class, predicted class, images)``; pairs that are left out have no image, and one that comes twice has the
images of both."""


@dataclass(frozen=True)
class ClassScore:
    """One class, over some test images."""

    images: int
    """That are of it."""
    predicted: int
    """Images that are said to be of it."""
    right: int
    """Images of it that are said to be."""

    @property
    def accuracy(self) -> float:
        """Percent of its images that are predicted right, its recall; NaN without any."""
        return 100 * self.right / self.images if self.images else math.nan

    @property
    def f1(self) -> float:
        """Harmonic mean of recall and precision in percent; NaN where no image is of it or said to be."""
        both = self.images + self.predicted
        return 200 * self.right / both if both else math.nan


def name_class(label: int, classes: Sequence[str]) -> str:
    """What a class is called; its number where ``classes`` does not say.

    >>> name_class(1, ["cat", "dog"]), name_class(2, ["cat", "dog"])
    ('dog', '2')
    """
    return classes[label] if label < len(classes) else str(label)


def score_classes(confusion: Confusion, classes: int = 0) -> dict[int, ClassScore]:
    """Scores by class: the first ``classes``, and others that occur.

    >>> score_classes([(0, 0, 3), (0, 1, 1), (1, 1, 2)])[0]
    ClassScore(images=4, predicted=3, right=3)
    """
    images, predicted, right = Counter[int](), Counter[int](), Counter[int]()
    for true, said, number in confusion:
        images[true] += number
        predicted[said] += number
        right[true] += number * (true == said)
    every = sorted({*range(classes), *images, *predicted})
    return {label: ClassScore(images[label], predicted[label], right[label]) for label in every}


def macro_f1(confusion: Confusion) -> float:
    """Mean F1 in percent over the classes that some image is of, or is said to be of; NaN without images.

    >>> round(macro_f1([(0, 0, 3), (0, 1, 1), (1, 1, 2)]), 2)  # (6/7 + 4/5) / 2
    82.86
    """
    return mean(score.f1 for score in score_classes(confusion).values())
