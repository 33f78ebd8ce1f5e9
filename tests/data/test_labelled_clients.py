"""Labelled clients and new clients: which images they have, who has labels, and which requests are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwca.data.dataset import Domain, FederatedDataset
from fedwca.data.federation import Federation
from fedwca.data.image_pool import ImagePool
from fedwca.errors import DataError, UsageError
from fedwca.partitions import ClientSettings, partitions
from fedwca.partitions.shards import Shards


def numbered(images: int, classes: int = 4, domains: int = 2, groups: bool = False) -> FederatedDataset:
    """A data set whose images hold their number in the first two pixels; the class changes after every two images."""
    built = {}
    for index in range(domains):
        pixels = np.zeros((images, 2, 2, 3), np.uint8)
        number = np.arange(images) + index * images
        pixels[:, 0, 0, :], pixels[:, 0, 1, :] = (number % 256)[:, None], (number // 256)[:, None]
        labels = (np.arange(images) // 2 % classes).astype(np.int64)
        bases = np.arange(images, dtype=np.int64) // 2 if groups else None
        built[f"d{index}"] = Domain(f"d{index}", pixels, labels, bases)
    return FederatedDataset("numbered", tuple(map(str, range(classes))), built)


def numbers(images: Tensor) -> list[int]:
    return (images[:, 0, 0, 0].long() + 256 * images[:, 0, 0, 1].long()).tolist()


def deal(spec: str = "shards", dataset: FederatedDataset | None = None, **changes: Any) -> Federation:
    settings = {"clients": 4, "samples": None, "seed": 0, "new_clients": 3, "validation": None} | changes
    federation: Federation = partitions.build(spec)(dataset or numbered(70), None, ClientSettings(**settings))
    return federation


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([np.arange(30), np.arange(29, 60)], "the partition's deal of 'numbered' gave image 29 twice"),
        ([np.arange(31), np.arange(31, 60)], "gave images of group 15, variants of one image, to several clients"),
        (None, "partition .*: share_out gave a NoneType; right is a list of each client's positions"),
        ([], "the partition's deal of 'numbered' changed what it was given in place; it may only read that"),
        ([np.arange(30), np.arange(130, 160)], "positions from 130 to 159; there are images 0 to 139"),
    ],
)
def test_a_deal_of_a_pool_is_checked_like_one_of_a_domain(shares: Any, said: str) -> None:
    class Own(Shards):
        """A partition of someone else's."""

        def share_out(self, pool: ImagePool, clients: int, random: np.random.Generator) -> Any:
            """As given, or by labels that it changes."""
            return shares if shares != [] else [np.flatnonzero(np.negative(pool.labels, out=pool.labels)), np.arange(0)]

    settings = ClientSettings(clients=1, samples=None, seed=0, new_clients=1)
    with pytest.raises(UsageError, match=said):
        Own()(numbered(70, groups=True), None, settings)


def test_a_deal_of_lists_is_one_of_arrays() -> None:
    class Own(Shards):
        """A partition of someone else's."""

        def share_out(self, pool: ImagePool, clients: int, random: np.random.Generator) -> Any:
            """Four images, none and five."""
            return [[*range(4)], np.array([]), [*range(4, 9)]]

    settings = ClientSettings(clients=1, samples=None, seed=0, new_clients=2)
    federation = Own()(numbered(70), None, settings)
    dealt = [*federation.clients, *federation.newcomers[0].clients]
    images = sorted(sorted(numbers(client.train) + numbers(client.test)) for client in dealt)
    assert images == [[], [0, 1, 2, 3], [4, 5, 6, 7, 8]]


@pytest.mark.parametrize("spec", ["shards", "shards:distinct=true", "dirichlet:alpha=0.5", "dirichlet:by=client"])
def test_every_image_is_one_clients_and_labels_are_those_of_training_images_alone(spec: str) -> None:
    federation = deal(spec)
    (new,) = federation.newcomers
    assert (len(federation), len(new), new.label) == (4, 3, "new clients")
    assert federation.measured_domains == ("training clients",) * 4 + ("new clients",) * 3
    seen: list[int] = []
    for k, client in enumerate(federation.clients):
        count = len(client.train) + len(client.test)
        assert len(client.test) == round(0.15 * count)
        truth = torch.tensor(numbers(client.train)) % 70 // 2 % 4
        assert client.labels is not None
        assert torch.equal(client.labels, truth)
        assert torch.equal(federation.metrics.test_truth(k), torch.tensor(numbers(client.test)) % 70 // 2 % 4)
        seen += numbers(client.train) + numbers(client.test)
    for k, client in enumerate(new.clients):
        assert (client.labels, len(client.train)) == (None, 0)
        assert torch.equal(new.metrics.test_truth(k), torch.tensor(numbers(client.test)) % 70 // 2 % 4)
        seen += numbers(client.test)
    assert len(seen) == len(set(seen))
    assert len(seen) == 140 or "client" in spec
    assert not bool(federation.metrics.counted.any())
    assert bool(new.metrics.counted.all())


def test_shards_are_few_classes_and_the_seed_decides_all() -> None:
    once, again, other_seed = deal(), deal(), deal(seed=1)
    assert all(len(set(client.labels.tolist())) <= 2 for client in once.clients if client.labels is not None)
    assert all(torch.equal(a.train, b.train) for a, b in zip(once.clients, again.clients, strict=True))
    assert [numbers(client.train) for client in once.clients] != [
        numbers(client.train) for client in other_seed.clients
    ]


@pytest.mark.parametrize("seed", range(4))
def test_shards_of_a_client_are_of_distinct_classes_where_asked(seed: int) -> None:
    federation = deal("shards:distinct=true", seed=seed)
    images = [numbers(client.train) + numbers(client.test) for client in federation.clients]
    images += [numbers(client.test) for client in federation.newcomers[0].clients]
    assert [len({number % 70 // 2 % 4 for number in own}) for own in images] == [2] * 7


@pytest.mark.parametrize("spec", ["shards", "dirichlet:alpha=0.5", "rotations", "shards:public=0.1"])
def test_a_seed_of_the_partition_is_every_runs_deal(spec: str) -> None:
    first, second = (deal(f"{spec}{',' if ':' in spec else ':'}seed=24", seed=seed) for seed in (0, 1))
    direct = deal(spec, seed=24)
    for federation in (second, direct):
        assert [numbers(client.train) for client in federation.all_clients] == [
            numbers(client.train) for client in first.all_clients
        ]
        assert [numbers(client.test) for client in federation.all_clients] == [
            numbers(client.test) for client in first.all_clients
        ]
        assert (federation.public_images is None) == (first.public_images is None)
        assert federation.public_images is None or torch.equal(federation.public_images, first.public_images)


@pytest.mark.parametrize("spec", ["shards", "dirichlet:alpha=5"])
def test_variants_of_one_image_stay_on_one_side(spec: str) -> None:
    federation = deal(spec, numbered(70, domains=1, groups=True), validation=0.3)
    parts = [numbers(part) for client in federation.clients for part in (client.train, client.test)]
    parts += [numbers(client.test) for client in federation.newcomers[0].clients]
    owners = {number // 2: index for index, part in enumerate(parts) for number in part}
    assert all(owners[number // 2] == index for index, part in enumerate(parts) for number in part)


def test_as_many_new_clients_come_as_train_and_samples_bound_both() -> None:
    federation = deal(new_clients=None, samples=10, validation=0.0)
    assert [len(client.train) for client in federation.clients] == [10] * 4
    assert [len(client.test) for client in federation.clients] == [0] * 4
    assert [len(client.test) for client in federation.newcomers[0].clients] == [10] * 4


@pytest.mark.parametrize(
    ("spec", "given", "error", "sentence"),
    [
        ("shards:per_client=50", {}, UsageError, "too few for"),
        ("shards", {"clients": 0}, UsageError, "clients >= 1"),
        ("shards", {"validation": 1.0}, UsageError, "validation < 1"),
        ("shards", {"published_split": True}, UsageError, "--split published: partition shards pools"),
        ("dirichlet:alpha=0.0001", {"clients": 30}, DataError, "fewer than 2 images to train on, in 100 deals"),
    ],
    ids=str,
)
def test_what_cannot_be_dealt_is_said(spec: str, given: dict[str, Any], error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        deal(spec, **given)


def test_shards_separate_no_variants_of_several_classes() -> None:
    dataset = numbered(70, groups=True)
    deal(dataset=dataset)
    dataset.domains["d1"].labels[3] = 0  # the other image of the group is of class 1
    with pytest.raises(DataError, match=r"partition shards: numbered has groups .* with several classes"):
        deal(dataset=dataset)


@pytest.mark.parametrize("spec", ["shards", "dirichlet:alpha=0.5"])
def test_public_images_are_drawn_first_and_are_nobodys_own(spec: str) -> None:
    federation, data = deal(f"{spec}{',' if ':' in spec else ':'}public=0.1"), numbered(70)
    assert federation.public_images is not None
    public = numbers(federation.public_images)
    private = [
        numbers(part)
        for client in (*federation.clients, *federation.newcomers[0].clients)
        for part in (client.train, client.test)
    ]
    assert len(public) == 14
    assert sorted([*public, *(number for part in private for number in part)]) == list(range(140))
    for domain in data.domains.values():  # no client has their labels, so changing them changes no client
        positions = [number % 70 for number in public if number // 70 == list(data.domains).index(domain.name)]
        domain.labels[positions] = (domain.labels[positions] + 1) % 4
    again = deal(f"{spec}{',' if ':' in spec else ':'}public=0.1", data)
    for a, b in zip(federation.clients, again.clients, strict=True):
        assert torch.equal(a.train, b.train)
        assert torch.equal(torch.as_tensor(a.labels), torch.as_tensor(b.labels))


def test_without_public_images_clients_are_those_of_before() -> None:
    default, without = deal("shards"), deal("shards:public=0")
    assert default.public_images is without.public_images is None
    assert [numbers(client.train) for client in default.clients] == [
        numbers(client.train) for client in without.clients
    ]
    grouped = deal("shards:public=0.2", numbered(70, domains=1, groups=True))
    assert grouped.public_images is not None
    public_bases = {number // 2 for number in numbers(grouped.public_images)}
    private_bases = [number // 2 for client in grouped.clients for number in numbers(client.train)]
    assert not public_bases & set(private_bases)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("shards:public=1.5", "public: Input should be less than 1"),
        ("shards:public=-0.1", "public: Input should be greater than or equal to 0"),
        ("shards:public=0.99", "139 of 140 images are public, and 1 are left for 7 clients.*, or fewer --clients or"),
        ("shards:public=0.001", "0 of 140 images are public"),
    ],
)
def test_a_public_part_larger_than_the_data_is_refused(spec: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        deal(spec)


def test_two_images_are_left_to_train_on() -> None:
    with pytest.raises(DataError, match="a client that trains would have fewer than 2 images to train on"):
        deal("shards", samples=2, validation=0.3)


def test_groups_of_one_domain_are_not_those_of_another_or_its_single_images() -> None:
    pixels = np.zeros((2, 2, 2, 3), np.uint8)
    labels = np.zeros(2, np.int64)
    domains = {"a": Domain("a", pixels, labels), "b": Domain("b", pixels, labels, np.zeros(2, np.int64))}
    pool = ImagePool(FederatedDataset("pooled", ("0",), domains))
    assert len(set(pool.groups.tolist())) == 3
    assert pool.groups[2] == pool.groups[3]


@pytest.mark.parametrize(("validation", "least"), [(0.25, 3), (0.2, 3), (0.15, 4), (0.1, 6)])
def test_the_fewest_images_of_which_one_is_held_out(validation: float, least: int) -> None:
    """A quarter of 2 images is half an image, which is rounded to none; of 3 it is rounded to one."""
    federation = deal("shards", samples=2, validation=validation)
    assert [len(client.test) for client in federation.clients] == [0] * 4
    assert federation.test_image_needs == f"{least} images"
    assert all(len(client.test) for client in deal("shards", samples=least, validation=validation).clients)


def test_clients_with_enough_images_in_too_few_groups_are_not_said_to_need_so_many() -> None:
    federation = deal("shards", numbered(70, groups=True), samples=4, validation=0.15)
    assert [len(client.test) for client in federation.clients] == [0] * 4
    assert federation.test_image_needs == "images of more groups"
