"""Class centroids, their similarity, and MDMGB's weights."""

import math

import pytest
import torch

from fedwca.errors import UsageError
from fedwca.functional import centroid_similarity, centroid_weights, class_centroids, prototype_labels

FEATURES = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 3.0], [1.0, 1.5]], dtype=torch.float64)
OUTPUTS = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)


def test_soft_centroids_by_hand() -> None:
    # Class 0: (0.5·(2, 0) + (4, 0) + 0.5·(1, 1.5)) / 2; class 1: (0.5·(2, 0) + (0, 3) + 0.5·(1, 1.5)) / 2.
    expected = torch.tensor([[2.75, 0.375], [0.75, 1.875]], dtype=torch.float64)
    torch.testing.assert_close(class_centroids(FEATURES, OUTPUTS, refine=0, append_one=False), expected)
    with_one = class_centroids(FEATURES, OUTPUTS, refine=0)
    torch.testing.assert_close(with_one, torch.cat([expected, torch.ones(2, 1, dtype=torch.float64)], 1))


def test_refined_centroids_are_means_of_the_nearest() -> None:
    # Of (1, 1.5) the cosine with (2.75, 0.375) is 0.66, with (0.75, 1.875) 0.98.
    refined = class_centroids(FEATURES, OUTPUTS, append_one=False)
    torch.testing.assert_close(refined, torch.tensor([[3.0, 0.0], [0.5, 2.25]], dtype=torch.float64))


def test_they_are_those_that_labels_are_read_from() -> None:
    draw = torch.Generator().manual_seed(0)
    features, outputs = torch.randn(30, 5, generator=draw), torch.randn(30, 4, generator=draw).softmax(1)
    for refine in (0, 1, 2):
        expected = prototype_labels(features, outputs, refine=refine, append_one=True)[2]
        assert torch.equal(class_centroids(features, outputs, refine=refine), expected)


def test_few_images_and_many_classes() -> None:
    """Four images, ten classes: the centroids of classes without images are zero, and the weights are finite."""
    draw = torch.Generator().manual_seed(1)
    features, outputs = torch.randn(4, 6, generator=draw), 9 * torch.randn(4, 10, generator=draw)
    centroids = class_centroids(features, outputs.softmax(1))
    assert centroids.shape == (10, 7)
    assert (centroids == 0).all(1).sum() >= 6
    weights = centroid_weights(torch.stack([centroids, centroids.roll(1, 0)]), centroids)
    assert weights.isfinite().all()
    assert weights.sum().item() == pytest.approx(1, abs=1e-15)


def test_similarity_by_hand() -> None:
    target = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]])
    source = torch.tensor([[4.0, 3.0], [1.0, 1.0], [0.0, 0.0]])
    # 24/25; the second class is absent from the target, the third from the source.
    similarity = centroid_similarity(source[None], target)
    assert similarity.dtype == torch.float64
    assert similarity.tolist() == pytest.approx([0.96], abs=1e-15)


def test_weights_by_hand() -> None:
    # s = 2, 0, -1 with M = 2: 4, 2 and 1 of 7.
    target = torch.eye(2)
    sources = torch.stack([2 * torch.eye(2), torch.eye(2).flip(0), torch.tensor([[-1.0, 0.0], [5.0, 0.0]])])
    weights = centroid_weights(sources, target)
    assert weights.dtype == torch.float64
    assert weights.tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7], abs=1e-15)
    cold = centroid_weights(sources, target, temperature=0.5)
    powers = [math.exp(s / (2 * 0.5)) for s in (2, 0, -1)]
    assert cold.tolist() == pytest.approx([p / sum(powers) for p in powers], abs=1e-15)


@pytest.mark.parametrize("temperature", [None, 0.1, 1e9, math.inf])
def test_equal_sources_weigh_alike_and_one_source_weighs_all(temperature: float | None) -> None:
    target, source = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(2))
    assert centroid_weights(source.expand(4, 5, 3), target, temperature).tolist() == pytest.approx([0.25] * 4)
    assert centroid_weights(source[None], target, temperature).tolist() == [1.0]


def test_temperature_has_its_limits() -> None:
    draw = torch.Generator().manual_seed(3)
    sources, target = torch.randn(3, 5, 4, generator=draw), torch.randn(5, 4, generator=draw)
    best = centroid_similarity(sources, target).argmax()
    assert centroid_weights(sources, target, 1e12).tolist() == pytest.approx([1 / 3] * 3, abs=1e-9)
    assert centroid_weights(sources, target, 1e-6)[best].item() == pytest.approx(1)
    assert centroid_weights(sources, target).argmax() == best


def test_opposite_sources_weigh_alike() -> None:
    target = torch.randn(6, 3, generator=torch.Generator().manual_seed(4))
    weights = centroid_weights(torch.stack([-target, -2 * target, -3 * target]), target)
    assert weights.tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)


def test_a_target_without_any_class_weighs_all_alike() -> None:
    assert centroid_weights(torch.randn(3, 4, 2), torch.zeros(4, 2)).tolist() == pytest.approx([1 / 3] * 3)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match=r"centroids \[K, M, q\]"):
        centroid_weights(torch.zeros(2, 3, 4), torch.zeros(3, 5))
    with pytest.raises(UsageError, match="temperature"):
        centroid_weights(torch.zeros(2, 3, 4), torch.zeros(3, 4), 0.0)


def test_weights_run_under_vmap() -> None:
    sources, target = torch.randn(5, 3, 4, 2), torch.randn(5, 4, 2)
    together = torch.func.vmap(centroid_weights)(sources, target)
    for k in range(5):
        torch.testing.assert_close(together[k], centroid_weights(sources[k], target[k]))
