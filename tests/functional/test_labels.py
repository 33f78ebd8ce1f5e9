"""Prototypes, prototype labels, selection between two models, mixup partners."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional import mixup_partners, prototype_labels, prototype_similarity, prototypes, select_labels

LARGEST = 1 - 2**-24  # largest float32 below 1


def test_prototypes_by_hand() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 2.0], [0.0, 6.0]])
    weights = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 1.5, 0.0]])
    # class 0: (2+4, 0+2)/2 = (3, 1); class 1: (0.5·4, 0.5·2 + 1.5·6)/2 = (1, 5); class 2: nobody
    assert prototypes(features, weights).tolist() == [[3, 1], [1, 5], [0, 0]]


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


def test_raw_features_weigh_by_length_and_normalised_ones_do_not() -> None:
    features, weights = torch.tensor([[10.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0], [1.0]])
    assert prototype_labels(features, weights)[2].tolist() == [[5.0, 0.5]]
    assert prototype_labels(features, weights, normalize_first=True)[2].tolist() == [[0.5, 0.5]]


def test_shot_appends_one_and_normalises() -> None:
    features, weights = torch.tensor([[2.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0], [1.0]])
    # (2, 2, 1)/3 and (0, 0, 1): mean (1/3, 1/3, 2/3); cosine with (2, 2, 1)/3: (2+2+2)/9 / √(6/9) = √6/3
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


def pair(similarities: list[float], label: int) -> tuple[Tensor, Tensor]:
    return torch.full((len(similarities),), label), torch.tensor(similarities, dtype=torch.float64)


def choose(d: list[float], e: list[float], p: float, q: float, rule: str = "margin") -> list[int]:
    return select_labels(pair(d, 0), pair(e, 1), torch.tensor(p).double(), torch.tensor(q).double(), rule).tolist()


def test_margin_by_hand() -> None:
    # p = 0.5, q = 0: margins 2d - 1 against e: 0.8 -> 0.6 < 0.7; 0.9 -> 0.8 > 0.7; 0.75 -> 0.5 = 0.5 (tie: initial)
    assert choose([0.8, 0.9, 0.75], [0.7, 0.7, 0.5], 0.5, 0.0) == [1, 0, 0]


def test_ratio_by_hand() -> None:
    # p = 0.5, q = 0.25: 0.8/0.5 = 1.6 < 0.5/0.25 = 2; 0.8/0.5 > 0.3/0.25 = 1.2; 0.5/0.5 = 0.25/0.25 (tie: initial)
    assert choose([0.8, 0.8, 0.5], [0.5, 0.3, 0.25], 0.5, 0.25, "ratio") == [1, 0, 0]


def test_a_negative_normaliser_turns_the_ratio_round_but_not_the_margin() -> None:
    assert choose([0.9], [0.2], -0.1, -0.1, "ratio") == [1]  # -9 < -2: the worse label
    assert choose([0.9], [0.2], -0.1, -0.1, "margin") == [0]


def test_without_a_normaliser_similarities_are_compared_as_they_are() -> None:
    assert choose([0.6, 0.4], [0.5, 0.5], 0.0, 0.0) == [0, 1]
    assert choose([0.6, 0.4], [0.5, 0.5], 0.0, 0.9, "ratio") == [0, 1]
    assert choose([0.6, 0.4], [0.5, 0.5], 1.0, 0.3) == [0, 1]
    assert choose([0.6, 0.4], [0.5, 0.5], 0.3, 1.0 + 1e-9) == [0, 1]


def test_identical_models_choose_the_initial_label() -> None:
    d = torch.rand(50, dtype=torch.float64).tolist()
    for rule in ("margin", "ratio"):
        assert choose(d, d, 0.37, 0.37, rule) == [0] * 50


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="rule"):
        choose([0.1], [0.1], 0.0, 0.0, "coin")


def test_partners_by_hand() -> None:
    labels = torch.tensor([1, 0, 1, 1, 0, 2])
    matched = torch.tensor([True, True, False, True, False, False])
    # class 1: matched 0 and 3; class 0: matched 1; class 2: nobody
    low = mixup_partners(labels, matched, torch.full((6,), 0.49), classes=3)
    high = mixup_partners(labels, matched, torch.full((6,), 0.5), classes=3)
    assert low.tolist() == [0, 1, 0, 0, 1, -1]
    assert high.tolist() == [3, 1, 3, 3, 1, -1]
    assert low.dtype == torch.int64


def test_all_mismatched_and_none_mismatched() -> None:
    labels, uniform = torch.tensor([0, 1, 1, 0]), torch.rand(4)
    assert mixup_partners(labels, torch.zeros(4, dtype=torch.bool), uniform, classes=2).tolist() == [-1] * 4
    partners = mixup_partners(labels, torch.ones(4, dtype=torch.bool), uniform, classes=2)
    assert torch.equal(labels[partners], labels)
    assert mixup_partners(labels[:0], labels[:0] == 0, uniform[:0], classes=2).tolist() == []


def test_the_largest_number_stays_in_the_class() -> None:
    for n in (1, 3, 7, 1000, 4099):
        labels = torch.arange(2 * n) % 2
        partners = mixup_partners(labels, torch.ones(2 * n).bool(), torch.full((2 * n,), LARGEST), classes=2)
        assert partners.tolist() == [2 * n - 2, 2 * n - 1] * n
    rounded = mixup_partners(torch.tensor([0, 1]), torch.ones(2).bool(), torch.ones(2), classes=2)
    assert rounded.tolist() == [0, 1]  # a half-precision number below 1 may have been rounded to 1


def test_every_partner_has_the_same_chance() -> None:
    n = 40_000
    labels, matched = torch.zeros(n, dtype=torch.long), torch.arange(n) < 4
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(0))
    counts = mixup_partners(labels, matched, uniform, classes=1).bincount(minlength=4)
    assert ((counts / n - 0.25).abs() < 0.01).all()  # 4.6 standard deviations


@settings(max_examples=80, deadline=None)
@given(n=st.integers(1, 40), classes=st.integers(1, 6), share=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_partners_are_matched_and_of_the_same_label(n: int, classes: int, share: float, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=draw)
    matched, mask = torch.rand(n, generator=draw) < share, torch.rand(n, generator=draw) < 0.8
    uniform = torch.where(torch.rand(n, generator=draw) < 0.2, LARGEST, torch.rand(n, generator=draw))
    partners = mixup_partners(labels, matched, uniform, mask, classes=classes)
    for i, partner in enumerate(partners.tolist()):
        pool = [j for j in range(n) if matched[j] and mask[j] and labels[j] == labels[i]]
        if pool and mask[i]:
            assert partner == pool[min(int(uniform[i] * len(pool)), len(pool) - 1)]
        else:
            assert partner == -1
