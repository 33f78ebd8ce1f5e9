from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwca.data import ClientImages, Domain, partition
from fedwca.data.image_pool import ImagePool
from fedwca.data.partition import leave_one_out
from fedwca.data.split_domain import Split, cut_at_groups, split_domain
from fedwca.errors import DataError, UsageError
from fedwca.partitions import ClientSettings
from fedwca.partitions.domains import Domains
from fedwca.runs.unmeasured_clients import describe_unmeasured
from fedwca.search.criteria import check_criterion_is_measured

from .examples import dataset, domain


def numbers(images: torch.Tensor) -> list[int]:
    return (images[:, 0, 0, 0].long() * 256 + images[:, 1, 0, 0].long()).tolist()


def all_numbers(client: ClientImages) -> list[int]:
    """Numbers of the images to train and to test on: of all images where the split keeps none for validation."""
    return numbers(client.train) + numbers(client.test)


def sizes(split: Split) -> tuple[int, int, int]:
    return len(split.train), len(split.validation), len(split.test)


@pytest.mark.parametrize(
    ("images", "expected"),
    # 1162 -> 744/186/232 by the rule round(.2 n), round(.16 n), rest; the notes' 743/186/233 is not any rounding of it.
    [(4250, (2720, 680, 850)), (1162, (744, 186, 232)), (557, (357, 89, 111)), (1310, (838, 210, 262))],
)
def test_client_sizes_follow_the_paper(images: int, expected: tuple[int, int, int]) -> None:
    (split,) = split_domain(domain("a", images), 1, None, np.random.default_rng(0))
    assert sizes(split) == expected


def test_usps_is_spread_over_eight_clients_as_evenly_as_it_goes() -> None:
    splits = split_domain(domain("usps", 9298), 8, None, np.random.default_rng(0))
    assert [sum(sizes(split)) for split in splits] == [1163, 1163, *[1162] * 6]


def test_every_image_of_every_target_goes_to_one_place_at_most() -> None:
    data = dataset(domain("a", 50), domain("b", 61), domain("c", 40))
    federation = partition(data, "B", clients=4, samples=None, seed=3)
    assert federation.metrics.domains == ("a",) * 4 + ("c",) * 4
    assert len(federation) == 8
    for clients, images in ((federation.clients[:4], 50), (federation.clients[4:], 40)):
        seen = [n for client in clients for n in all_numbers(client)]
        assert len(set(seen)) == len(seen) == images - 4 * 2  # two images of each client are for validation
    assert federation.clients[0].train.dtype == torch.uint8
    assert federation.clients[0].train.shape[1:] == (3, 4, 4)


def test_seed_decides_and_source_does_not() -> None:
    data = dataset(domain("a", 50), domain("b", 50), domain("c", 50))
    first = partition(data, "a", clients=2, samples=None, seed=0)
    again = partition(data, "a", clients=2, samples=None, seed=0)
    other_seed = partition(data, "a", clients=2, samples=None, seed=1)
    other_source = partition(data, "c", clients=2, samples=None, seed=0)
    assert numbers(first.clients[0].train) == numbers(again.clients[0].train)
    assert numbers(first.clients[0].train) != numbers(other_seed.clients[0].train)
    assert numbers(first.clients[0].train) == numbers(other_source.clients[2].train)  # both of b
    assert numbers(first.clients[0].train) != numbers(first.clients[2].train)


def test_clients_hold_no_labels_and_no_domain() -> None:
    federation = partition(dataset(domain("a", 20), domain("b", 20)), "a", clients=2, samples=None, seed=0)
    fields = vars(federation.clients[0])
    assert fields.pop("labels") is None
    assert set(fields) == {"train", "test"}
    assert {tensor.ndim for tensor in fields.values()} == {4}


def test_labels_stay_with_their_images() -> None:
    federation = partition(dataset(domain("a", 5), domain("b", 60)), "a", clients=3, samples=None, seed=0)
    for index, client in enumerate(federation.clients):
        right = torch.tensor(numbers(client.test)) % 10
        assert federation.metrics.accuracy(index, right) == 100
        assert federation.metrics.pseudo_label_accuracy(index, torch.tensor(numbers(client.train)) % 10) == 100


def test_samples_caps_a_client_before_the_split() -> None:
    federation = partition(dataset(domain("a", 5), domain("b", 100)), "a", clients=2, samples=25, seed=0)
    assert [(len(c.train), len(c.test)) for c in federation.clients] == [(16, 5)] * 2


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=40),
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(1, 30)),
    st.integers(0, 99),
)
def test_groups_never_cross_clients_or_splits(counts: list[int], clients: int, samples: int | None, seed: int) -> None:
    clients = min(clients, len(counts))
    groups = np.repeat(np.arange(len(counts), dtype=np.int64) * 7, counts)
    splits = split_domain(domain("a", len(groups), groups=groups), clients, samples, np.random.default_rng(seed))
    parts = [part for split in splits for part in (split.train, split.validation, split.test)]
    seen = [set(groups[part]) for part in parts]
    assert sum(map(len, seen)) == len(set().union(*seen))
    used = np.concatenate(parts)
    assert len(used) == len(set(used.tolist()))
    assert len(splits) == clients
    assert all(len(split.train) >= 1 for split in splits)
    if samples is None:
        assert len(used) == len(groups)
    else:
        assert all(sum(sizes(split)) <= samples for split in splits)


@settings(max_examples=60)
@given(st.integers(1, 400), st.integers(1, 9), st.integers(0, 99))
def test_without_groups_the_sizes_are_exact(images: int, clients: int, seed: int) -> None:
    clients = min(clients, images)
    for split, chunk in zip(
        split_domain(domain("a", images), clients, None, np.random.default_rng(seed)),
        np.array_split(np.arange(images), clients),
        strict=True,
    ):
        test, validation = round(0.2 * len(chunk)), round(0.16 * len(chunk))
        assert sizes(split) == (len(chunk) - test - validation, validation, test)


def test_groups_keep_the_shares_nearly() -> None:
    groups = np.arange(2200, dtype=np.int64) // 2
    for split in split_domain(domain("a", 2200, groups=groups), 8, None, np.random.default_rng(0)):
        assert sizes(split)[0] == pytest.approx(176, abs=3)
        assert sizes(split)[2] == pytest.approx(55, abs=3)


def test_a_client_of_one_image_trains_and_has_no_accuracy() -> None:
    federation = partition(dataset(domain("a", 5), domain("b", 3)), "a", clients=3, samples=None, seed=0)
    assert [len(client.train) for client in federation.clients] == [1, 1, 1]
    assert federation.clients[0].test.shape == (0, 3, 4, 4)
    accuracies = [federation.metrics.accuracy(k, torch.zeros(0, dtype=torch.int64)) for k in range(3)]
    assert all(math.isnan(accuracy) for accuracy in accuracies)
    assert math.isnan(federation.metrics.by_domain(accuracies)["b"])


def test_too_many_clients_names_domain_and_numbers() -> None:
    with pytest.raises(UsageError, match=r"domain 'b' has 3 images, too few for 4 clients"):
        partition(dataset(domain("a", 5), domain("b", 3)), "a", clients=4, samples=None, seed=0)
    grouped = domain("b", 30, groups=np.zeros(30, np.int64))
    with pytest.raises(UsageError, match="1 group of images, too few for 2 clients"):
        partition(dataset(domain("a", 5), grouped), "a", clients=2, samples=None, seed=0)


@pytest.mark.parametrize("wrong", [{"clients": 0}, {"samples": 0}, {"seed": -1}])
def test_numbers_out_of_bounds(wrong: dict[str, int]) -> None:
    right = {"clients": 2, "samples": None, "seed": 0}
    with pytest.raises(UsageError, match=r"clients >= 1"):
        partition(dataset(domain("a", 5), domain("b", 3)), "a", **{**right, **wrong})


def test_a_source_alone_is_no_federation() -> None:
    with pytest.raises(UsageError, match="only the source domain"):
        partition(dataset(domain("a", 5)), "a", clients=1, samples=None, seed=0)


def test_an_unknown_source_gets_a_hint() -> None:
    with pytest.raises(UsageError, match=r"no domain 'photoo'; did you mean 'photo'\? Known: photo, sketch"):
        partition(dataset(domain("photo", 5), domain("sketch", 5)), "photoo", clients=1, samples=None, seed=0)


def parted(name: str, train: int, test: int) -> Domain:
    return replace(domain(name, train + test), part=np.array([0] * train + [1] * test))


def test_published_parts_are_kept_apart_and_whole() -> None:
    data = dataset(domain("a", 50), parted("b", 30, 11))
    federation = partition(data, "a", clients=1, samples=None, seed=3, published_split=True)
    (client,) = federation.clients
    assert sorted(numbers(client.train)) == list(range(30))
    assert sorted(numbers(client.test)) == list(range(30, 41))
    other_seed = partition(data, "a", clients=1, samples=None, seed=4, published_split=True)
    assert numbers(other_seed.clients[0].train) != numbers(client.train)


def test_published_parts_are_spread_over_clients() -> None:
    splits = split_domain(parted("a", 300, 120), 3, 100, np.random.default_rng(0), published_split=True)
    train, test = (np.concatenate([getattr(split, name) for split in splits]) for name in ("train", "test"))
    assert all(sum(sizes(split)) == 100 for split in splits)
    assert train.max() < 300 <= test.min()
    assert len(set(train)) == len(train)
    assert len(set(test)) == len(test)


def test_published_parts_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="'a' does not say which images are its published test part"):
        split_domain(domain("a", 9), 1, None, np.random.default_rng(0), published_split=True)
    with pytest.raises(UsageError, match="no image of the published training part; take fewer --clients"):
        split_domain(parted("a", 1, 9), 5, None, np.random.default_rng(0), published_split=True)


def test_a_group_of_any_number_is_kept() -> None:
    groups = np.array([-1, -1, -1, 1, 2, 3, 4, 5, 6, 7])
    assert [len(part) for part in cut_at_groups(np.arange(10), groups, np.array([8]))] == [8, 2]
    assert [len(part) for part in cut_at_groups(np.arange(4), np.full(4, -1), np.array([2]))] == [4, 0]
    pool = ImagePool(dataset(domain("a", 10, groups=groups)))
    for seed in range(9):
        parts = pool.split(pool.shuffled(np.arange(10), np.random.default_rng(seed)), 0.2)
        assert sorted(np.concatenate(parts).tolist()) == list(range(10))


def test_published_parts_that_divide_a_group() -> None:
    grouped = replace(parted("a", 6, 6), groups=np.array([0, 1, 2, 3, 4, -5, -5, 6, 7, 8, 9, 9]))
    with pytest.raises(DataError, match="domain 'a' has images of group -5 in its training and in its test part"):
        split_domain(grouped, 2, None, np.random.default_rng(0), published_split=True)
    paired = replace(parted("a", 6, 6), groups=np.arange(12) // 2)
    (split,) = split_domain(paired, 1, None, np.random.default_rng(0), published_split=True)
    assert sizes(split) == (6, 0, 6)


def test_what_clients_without_test_images_need_is_what_they_lack() -> None:
    """A client of 6 images in two groups has one group to train on and one for validation."""
    grouped, single = domain("b", 6, classes=1, groups=np.arange(6) // 3), domain("c", 2, classes=1)
    untested_part = replace(domain("d", 6, classes=1), part=np.zeros(6, np.int64))
    tested = replace(domain("a", 9, classes=1), part=np.arange(9) // 6)
    for domains, published, needs in (
        ([grouped], False, "images of more groups"),
        ([single], False, "3 images"),
        ([grouped, single], False, "3 images or images of more groups"),
        ([untested_part], True, "an image of the published test part"),
    ):
        data = dataset(tested, *domains, classes=1)
        federation = partition(data, "a", clients=1, samples=6, seed=0, published_split=published)
        assert [len(client.test) for client in federation.clients] == [0] * len(domains)
        described = describe_unmeasured([0] * len(domains), federation.test_image_needs)
        assert described is not None
        assert described.endswith(f"no accuracy can be measured; clients need {needs} for a test image")
        with pytest.raises(UsageError, match=f"to judge by; clients need {needs} for a test image"):
            check_criterion_is_measured("accuracy", 1, federation)
        target_needs = needs.partition(" or ")[2] or needs
        with pytest.raises(DataError, match=f"has no test image; it needs {target_needs}$"):
            leave_one_out(data, domains[0].name, clients=1, samples=6, seed=0, published_split=published)
    # What a source's client lacks is not said of the target's.
    with pytest.raises(DataError, match=r"target domain 'b' has no test image; it needs images of more groups$"):
        leave_one_out(dataset(tested, grouped, single, classes=1), "b", clients=1, samples=6, seed=0)


@pytest.mark.parametrize(
    ("dealt", "said"),
    [
        ([[0, 1], [2]], None),
        (
            [np.arange(10) < 5, np.arange(10) >= 5],
            r"gave client 0 bool of shape \(10,\); right are positions",
        ),
        ([[0], [[1, 2]]], r"gave client 1 int64 of shape \(1, 2\); right are positions"),
        ([[0.0], [1.0]], r"gave client 0 float64 of shape \(1,\)"),
        ([[0], [10]], "gave client 1 positions from 10 to 10; there are images 0 to 9"),
        ([[-1], [1]], "gave client 0 positions from -1 to -1"),
        ([[0, 1], [1, 2]], "the partition's deal of 'b' gave image 1 twice"),
        ([[0, 1, 2], [4, 3]], "gave images of group 1, variants of one image, to several clients"),
        (None, "the partition's deal of 'b' gave nothing; right is a list of each client's positions"),
    ],
)
def test_a_deal_is_positions_of_images(dealt: list[object] | None, said: str | None) -> None:
    data = dataset(domain("a", 10), replace(parted("b", 10, 0), groups=np.arange(10) // 2))

    def dealt_numbers() -> list[list[int]]:
        deal: Any = lambda *_: dealt  # noqa: E731
        federation = partition(data, "a", clients=2, samples=None, seed=0, published_split=True, deal=deal)
        return [sorted(all_numbers(client)) for client in federation.clients]

    if said is None:
        assert dealt_numbers() == dealt
        return
    with pytest.raises(UsageError, match=said):
        dealt_numbers()


def test_a_partition_with_a_deal_of_its_own_needs_no_more_than_that() -> None:
    class Halves(Domains):
        """Even positions to one client, odd ones to the other."""

        def deal(self, domain: Domain, clients: int, random: np.random.Generator) -> list[np.ndarray]:
            """By turns."""
            return [np.arange(client, len(domain), clients) for client in range(clients)]

    options = ClientSettings(clients=2, samples=None, seed=0, published_split=True)
    federation = Halves()(dataset(domain("a", 10), parted("b", 10, 0)), "a", options)
    assert [sorted(all_numbers(client)) for client in federation.clients] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


class Faulty(Domains):
    """Even positions to one client, odd ones to the other, or with one fault."""

    wrong: str = ""
    free: bool = False

    @property
    def decides_client_count(self) -> bool:
        """Where it says so."""
        return self.free

    def deal(self, domain: Domain, clients: int, random: np.random.Generator) -> list[np.ndarray]:
        """By turns."""
        if self.wrong in ("labels", "groups"):
            random.shuffle(getattr(domain, self.wrong))
        dealt = [np.arange(client, len(domain), clients) for client in range(clients)]
        if self.wrong == "many":
            return [*dealt[:-1], *np.split(dealt[-1], [2])]
        return dealt[1:] if self.wrong == "few" else dealt


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("labels", "deal of 'b' changed what it was given in place; it may only read that"),
        ("groups", "deal of 'b' changed what it was given in place"),
        (
            "few",
            "deal of 'b' to 2 clients gave positions for 1; right are some for each, or a property decides_client_",
        ),
        ("many", "deal of 'b' to 2 clients gave positions for 3"),
    ],
)
def test_a_deal_is_to_all_clients_and_changes_nothing(wrong: str, said: str) -> None:
    data = dataset(domain("a", 10), replace(domain("b", 10), groups=np.arange(10)))
    with pytest.raises(UsageError, match=said):
        Faulty(wrong=wrong)(data, "a", ClientSettings(clients=2, samples=None, seed=0))
    if wrong in ("few", "many"):
        federation = Faulty(wrong=wrong, free=True)(data, "a", ClientSettings(clients=2, samples=None, seed=0))
        assert len(federation) == {"few": 1, "many": 3}[wrong]


def test_each_client_has_a_group_whatever_their_sizes() -> None:
    groups = np.array([0, 1, 2, *[3] * 97])
    parts = cut_at_groups(np.arange(100), groups, np.array([25, 50, 75]), least=1)
    assert [len(part) for part in parts] == [1, 1, 1, 97]
