"""Scores from a confusion matrix, by hand and against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score

from fedwca.results.class_scores import ClassScore, macro_f1, score_classes


def test_scores_by_hand() -> None:
    scores = score_classes([(0, 0, 3), (0, 1, 1), (1, 1, 2), (1, 2, 2)], classes=4)
    assert scores[0] == ClassScore(images=4, predicted=3, right=3)
    assert (scores[0].accuracy, scores[1].accuracy) == (75.0, 50.0)
    assert scores[1].f1 == pytest.approx(100 * 2 * (2 / 3 * 1 / 2) / (2 / 3 + 1 / 2))
    assert math.isnan(scores[2].accuracy), "no image is of it"
    assert scores[2].f1 == 0, "but two are said to be"
    assert math.isnan(scores[3].f1), "neither"
    assert macro_f1([(0, 0, 3), (0, 1, 1), (1, 1, 2), (1, 2, 2)]) == pytest.approx((600 / 7 + 400 / 7 + 0) / 3)
    assert math.isnan(macro_f1([]))


def test_f1_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    true, predicted = random.integers(0, 6, 80), random.integers(1, 8, 80)
    counts = confusion_matrix(true, predicted, labels=range(8))
    confusion = [(t, p, int(counts[t, p])) for t in range(8) for p in range(8) if counts[t, p]]
    assert macro_f1(confusion) == pytest.approx(100 * f1_score(true, predicted, average="macro"))
