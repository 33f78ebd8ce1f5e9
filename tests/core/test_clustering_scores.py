"""Scores of clusterings, against values worked out by hand and against scikit-learn."""

import math
import random

import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedwca.core.clustering_scores import adjusted_rand_index, normalized_mutual_information


def test_by_hand() -> None:
    # Of 6 pairs, 1 is together in the first and 3 in the second, and that 1 in both: (1 - 3/6) / (2 - 3/6).
    assert adjusted_rand_index("aabc", [0, 0, 0, 1]) == pytest.approx(1 / 3)
    first, second = 1.5 * math.log(2), 0.75 * math.log(4 / 3) + 0.25 * math.log(4)
    # The second clustering is a function of the first, so its entropy is the information.
    assert normalized_mutual_information("aabc", [0, 0, 0, 1]) == pytest.approx(2 * second / (first + second))


@pytest.mark.parametrize("score", [adjusted_rand_index, normalized_mutual_information])
def test_names_of_clusters_do_not_matter(score: object) -> None:
    assert callable(score)
    assert score("aabbcd", [3, 3, 1, 1, 2, 0]) == 1
    assert score("aaa", [0, 0, 0]) == score("abc", [2, 0, 1]) == score("a", [5]) == 1
    assert score("aaa", [0, 1, 2]) == score("abc", [0, 0, 0]) == 0


def test_as_scikit_learn() -> None:
    draw = random.Random(0)
    for _ in range(200):
        clusters, domains, items = draw.randint(1, 5), draw.randint(1, 5), draw.randint(1, 30)
        first = [draw.randrange(domains) for _ in range(items)]
        second = [draw.randrange(clusters) for _ in range(items)]
        assert adjusted_rand_index(first, second) == adjusted_rand_score(first, second)
        expected = normalized_mutual_info_score(first, second)
        assert normalized_mutual_information(first, second) == pytest.approx(expected, abs=1e-12)
