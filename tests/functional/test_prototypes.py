"""Class prototypes and labels by the nearest: hand-worked numbers and edges."""

import math

import pytest
import torch

from fedwca.errors import UsageError
from fedwca.functional import fill_prototypes, prototype_labels, prototype_similarity, prototypes


def test_prototypes_by_hand() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 2.0], [0.0, 6.0]])
    weights = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 1.5, 0.0]])
    # class 0: (2+4, 0+2)/2 = (3, 1); class 1: (0.5·4, 0.5·2 + 1.5·6)/2 = (1, 5); class 2: nobody
    assert prototypes(features, weights).tolist() == [[3, 1], [1, 5], [0, 0]]


def test_a_class_that_a_client_lacks_is_the_mean_of_those_that_have_it() -> None:
    own = torch.tensor([[[2.0, 0.0], [1.0, 1.0]], [[6.0, 4.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    filled = fill_prototypes(own)
    assert filled[2].tolist() == [[4, 2], [1, 1]]  # of two clients, of one
    assert filled[:2].tolist() == [[[2, 0], [1, 1]], [[6, 4], [1, 1]]]


def test_prototypes_with_tiny_weights_keep_their_direction() -> None:
    features = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    means = prototypes(features, torch.tensor([[1e-30, 1.0], [1e-30, 1.0]]))
    torch.testing.assert_close(means[0], torch.tensor([3.0, 4.0]))


def test_labels_by_hand() -> None:
    features = torch.tensor([[4.0, 0.0], [3.0, 3.0], [0.0, 2.0]])
    probabilities = torch.tensor([[0.75, 0.25], [0.25, 0.75], [0.0, 1.0]])
    # soft: p0 = (0.75·4 + 0.25·3, 0.25·3)/1 = (3.75, 0.75); p1 = (1 + 2.25, 2.25 + 2)/2 = (1.625, 2.125).
    # cosines of (1,1)/√2: with p0 4.5/(√2·3.8243) = 0.832, with p1 3.75/(√2·2.6752) = 0.991 -> labels 0, 1, 1.
    soft = prototype_labels(features, probabilities, refine=0)
    assert soft[0].tolist() == [0, 1, 1]
    assert soft[0].dtype == torch.int64
    assert soft[2].tolist() == [[3.75, 0.75], [1.625, 2.125]]
    assert soft[1][1].item() == pytest.approx(3.75 / (math.sqrt(2) * math.hypot(1.625, 2.125)))
    # one-hot: p0 = (4, 0), p1 = (1.5, 2.5): cosines 1; 4/(√2·2.9155) = 0.9701; 2.5/2.9155 = 0.8575
    labels, similarities, means = prototype_labels(features, probabilities)
    assert labels.tolist() == [0, 1, 1]
    assert means.tolist() == [[4, 0], [1.5, 2.5]]
    length = math.hypot(1.5, 2.5)
    assert similarities.tolist() == pytest.approx([1.0, 4 / (math.sqrt(2) * length), 2.5 / length])


def test_the_second_pass_can_change_a_label() -> None:
    draw = torch.Generator().manual_seed(3)
    features, logits = torch.randn(60, 4, generator=draw), torch.randn(60, 3, generator=draw)
    once = prototype_labels(features, logits.softmax(1), refine=0)[0]
    twice, similarities, means = prototype_labels(features, logits.softmax(1))
    assert not torch.equal(once, twice)
    one_hot = torch.eye(3)[once]
    torch.testing.assert_close(means, prototypes(features, one_hot))
    torch.testing.assert_close(similarities, torch.cosine_similarity(features, means[twice]))


def test_later_passes_count_the_labels_of_the_pass_before() -> None:
    """By outputs each class has two samples; the first pass leaves the second class one, which is too few."""
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    outputs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.4, 0.6], [0.0, 1.0]])
    labels = [prototype_labels(features, outputs, refine=n, min_count=2)[0].tolist() for n in (0, 1)]
    assert labels == [[0, 0, 0, 1], [0, 0, 0, 0]]


def test_raw_features_weigh_by_length_and_normalised_ones_do_not() -> None:
    features, weights = torch.tensor([[10.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0], [1.0]])
    assert prototype_labels(features, weights)[2].tolist() == [[5.0, 0.5]]
    assert prototype_labels(features, weights, normalize_first=True)[2].tolist() == [[0.5, 0.5]]


def test_shot_appends_one_and_normalises() -> None:
    features, weights = torch.tensor([[2.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0], [1.0]])
    # (2, 2, 1)/3 and (0, 0, 1): mean (1/3, 1/3, 2/3); its cosine with (2, 2, 1)/3: (2+2+2)/9 / √(6/9) = √6/3
    _, similarities, means = prototype_labels(features, weights, normalize_first=True, append_one=True)
    assert means.flatten().tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert similarities.tolist() == pytest.approx([math.sqrt(6) / 3, math.sqrt(6) / 3])
    assert prototype_labels(features, weights, append_one=True)[2].tolist() == [[1.0, 1.0, 1.0]]


def test_shots_labels_by_hand() -> None:
    features = torch.tensor([[2.0, 2.0], [8.0, 4.0], [4.0, 8.0]], dtype=torch.float64)
    one_hot = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    # With a 1 appended, over their lengths 3, 9, 9: (6, 6, 3)/9, (8, 4, 1)/9, (4, 8, 1)/9.
    # p0 = (6, 6, 3)/9 and p1 = (6, 6, 1)/9, of length √73/9. Cosines with p0: 1, 75/81, 75/81;
    # with p1: 75/(9√73), 73/(9√73), 73/(9√73) = 0.975, 0.949, 0.949 -> labels 0, 1, 1, and the same again from these.
    labels, similarities, means = prototype_labels(features, one_hot, normalize_first=True, append_one=True)
    assert labels.tolist() == [0, 1, 1]
    assert similarities.tolist() == pytest.approx([1, math.sqrt(73) / 9, math.sqrt(73) / 9])
    assert (9 * means).flatten().tolist() == pytest.approx([6, 6, 3, 6, 6, 1])
    # Eq. 4's prototypes, (2, 2) and (6, 6), point one way.
    assert prototype_similarity(prototypes(features, one_hot)).item() == pytest.approx(1)


def test_an_empty_class_is_never_assigned_even_if_all_cosines_are_negative() -> None:
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1], [5.0, 0.0]])
    one_hot = torch.tensor([[0.0, 1.0, 0.0]] * 4)
    labels, similarities, means = prototype_labels(features, one_hot)
    assert labels.tolist() == [1, 1, 1, 1]
    assert (similarities < 0).any()
    assert means.isfinite().all()
    assert means[0].tolist() == [0, 0]


def test_dead_features_give_numbers() -> None:
    labels, similarities, means = prototype_labels(torch.zeros(3, 2), torch.full((3, 4), 0.25))
    assert (labels.tolist(), similarities.tolist()) == ([0, 0, 0], [0, 0, 0])
    assert means.isfinite().all()


@pytest.mark.parametrize("n", [0, 1])
def test_few_samples(n: int) -> None:
    labels, similarities, means = prototype_labels(torch.ones(n, 2), torch.tensor([[0.1, 0.9]]).expand(n, 2))
    assert labels.shape == similarities.shape == (n,)
    assert means.isfinite().all()
    assert prototype_similarity(means).isfinite()


@pytest.mark.parametrize("refine", [0, 1])
def test_a_single_sample_has_the_class_of_its_largest_probability(refine: int) -> None:
    """All its soft prototypes are the sample itself, so the largest cosine would be decided by rounding."""
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        features, probabilities = torch.randn(3, 7, generator=draw), torch.rand(3, 5, generator=draw).softmax(1)
        mask = torch.tensor([0, 1, 0])
        for arguments in ((features[1:2], probabilities[1:2]), (features, probabilities, mask)):
            labels, similarities, _ = prototype_labels(*arguments, refine=refine)
            place = len(labels) // 2
            assert int(labels[place]) == int(probabilities[1].argmax())
            assert float(similarities[place]) == pytest.approx(1)


def test_negative_refine_is_refused() -> None:
    with pytest.raises(UsageError, match="refine"):
        prototype_labels(torch.ones(2, 2), torch.ones(2, 2), refine=-1)


def test_prototype_similarity_by_hand() -> None:
    # (1,0), (0,2), (3,4): cosines 0, 0.6, 0.8, each twice among 6 ordered pairs: mean 1.4/3
    means = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]])
    assert prototype_similarity(means).item() == pytest.approx(1.4 / 3)
    assert prototype_similarity(torch.cat([means, torch.zeros(5, 2)])).item() == pytest.approx(1.4 / 3)


@pytest.mark.parametrize("present", [0, 1])
def test_prototype_similarity_with_fewer_than_two_classes_is_zero(present: int) -> None:
    assert prototype_similarity(torch.eye(3, 4) * (torch.arange(3) < present)[:, None]).item() == 0.0


@pytest.mark.parametrize("classes", [2, 5, 10])
def test_centred_prototypes_have_similarity_minus_one_over_m_minus_one(classes: int) -> None:
    simplex = torch.eye(classes, dtype=torch.float64) - 1 / classes
    assert prototype_similarity(simplex).item() == pytest.approx(-1 / (classes - 1))
