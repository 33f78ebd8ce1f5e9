"""Partners for mixup."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwca.functional import mixup_partners

LARGEST = 1 - 2**-24  # largest float32 below 1


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


@settings(max_examples=80)
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
