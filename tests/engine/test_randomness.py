import torch
from hypothesis import given
from hypothesis import strategies as st

from fedwca.core.network import Drop
from fedwca.engine.dropout import dropout_masks
from fedwca.engine.randomness import Keys, fold_key, permutation, uniform


def test_numbers_are_the_published_splitmix64() -> None:
    # SplitMix64 from state 0 gives e220a8397b1dcdaf, 6e789e6aa1b965f4, 06c45d188009454f (Steele, Lea, Flood).
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    drawn = uniform(0, torch.arange(3))
    assert drawn.tolist() == [(value >> 11) * 2.0**-53 for value in expected]


@given(st.integers(0, 2**64 - 1), st.integers(1, 200))
def test_a_number_does_not_depend_on_which_others_are_asked_for(key: int, n: int) -> None:
    together = uniform(key, torch.arange(n))
    alone = torch.stack([uniform(key, torch.tensor(i)) for i in (0, n - 1)])
    assert torch.equal(together[[0, n - 1]], alone)
    assert bool(((together >= 0) & (together < 1)).all())


def test_uniform_in_distribution() -> None:
    drawn = uniform(fold_key([3, "test"]), torch.arange(100_000))
    counts = torch.histc(drawn, 10, 0, 1)
    # 10,000 expected per bin, standard deviation 95: five of them are 475.
    assert (counts - 10_000).abs().max() < 475
    assert abs(float(torch.corrcoef(torch.stack([drawn[:-1], drawn[1:]]))[0, 1])) < 0.02


@given(st.integers(0, 2**63), st.integers(1, 300))
def test_permutation_holds_every_index_once(key: int, n: int) -> None:
    assert permutation(key, n).sort().values.tolist() == list(range(n))


def test_keys_differ_in_every_part() -> None:
    base = Keys(0, 0)(0, 0, "dropout")
    changed_keys = [Keys(1, 0)(0, 0, "dropout"), Keys(0, 1)(0, 0, "dropout"), Keys(0, 0)(1, 0, "dropout")]
    changed_keys += [Keys(0, 0)(0, 1, "dropout"), Keys(0, 0)(0, 0, "order 0")]
    assert len({base, *changed_keys}) == 6


def test_keys_stay_what_they_were() -> None:
    # A change here changes every published number.
    assert Keys(0, 0)(0, 0, "dropout") == fold_key([0, 0, 0, 0, "dropout"]) == 14557639011409630897


def test_dropout_keeps_units_above_the_probability_and_scales_them() -> None:
    # The draws are .6524, .7012 and .3871.
    (mask,) = dropout_masks((Drop(0.4, (1,)),), fold_key([0]), 0, torch.arange(3), 3)
    torch.testing.assert_close(mask.flatten(), torch.tensor([5 / 3, 5 / 3, 0]))
