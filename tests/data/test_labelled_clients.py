"""Labelled clients and new ones: who has which images, who has labels, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwca.data.dataset import Domain, FederatedDataset
from fedwca.data.federation import Federation
from fedwca.errors import DataError, UsageError
from fedwca.partitions import ClientSettings, partitions


def numbered(images: int, classes: int = 4, domains: int = 2, groups: bool = False) -> FederatedDataset:
    """Images whose first two pixels say which they are; classes by turns."""
    made = {}
    for at in range(domains):
        pixels = np.zeros((images, 2, 2, 3), np.uint8)
        number = np.arange(images) + at * images
        pixels[:, 0, 0, :], pixels[:, 0, 1, :] = (number % 256)[:, None], (number // 256)[:, None]
        labels = (np.arange(images) // 2 % classes).astype(np.int64)
        bases = np.arange(images, dtype=np.int64) // 2 if groups else None
        made[f"d{at}"] = Domain(f"d{at}", pixels, labels, bases)
    return FederatedDataset("numbered", tuple(map(str, range(classes))), made)


def numbers(images: Tensor) -> list[int]:
    return (images[:, 0, 0, 0].long() + 256 * images[:, 0, 0, 1].long()).tolist()


def deal(spec: str = "shards", dataset: FederatedDataset | None = None, **given: Any) -> Federation:
    asked = {"clients": 4, "samples": None, "seed": 0, "new_clients": 3, "validation": None} | given
    found: Federation = partitions.build(spec)(dataset or numbered(70), None, ClientSettings(**asked))
    return found


@pytest.mark.parametrize("spec", ["shards", "shards:distinct=true", "dirichlet:alpha=0.5", "dirichlet:by=client"])
def test_every_image_is_one_clients_and_labels_are_those_of_training_images_alone(spec: str) -> None:
    found = deal(spec)
    (new,) = found.newcomers
    assert (len(found), len(new), new.label) == (4, 3, "new clients")
    assert found.measured == ("training clients",) * 4 + ("new clients",) * 3
    seen: list[int] = []
    for k, own in enumerate(found.clients):
        count = len(own.train) + len(own.test)
        assert (len(own.test), len(own.validation)) == (round(0.15 * count), 0)
        truth = torch.tensor(numbers(own.train)) % 70 // 2 % 4
        assert own.labels is not None
        assert torch.equal(own.labels, truth)
        assert torch.equal(found.metrics.truth(k), torch.tensor(numbers(own.test)) % 70 // 2 % 4)
        seen += numbers(own.train) + numbers(own.test)
    for k, own in enumerate(new.clients):
        assert (own.labels, len(own.train), len(own.validation)) == (None, 0, 0)
        assert torch.equal(new.metrics.truth(k), torch.tensor(numbers(own.test)) % 70 // 2 % 4)
        seen += numbers(own.test)
    assert len(seen) == len(set(seen))
    assert len(seen) == 140 or "client" in spec
    assert not bool(found.metrics.counted.any())
    assert bool(new.metrics.counted.all())


def test_shards_are_few_classes_and_the_seed_decides_all() -> None:
    once, again, other = deal(), deal(), deal(seed=1)
    assert all(len(set(own.labels.tolist())) <= 2 for own in once.clients if own.labels is not None)
    assert all(torch.equal(a.train, b.train) for a, b in zip(once.clients, again.clients, strict=True))
    assert [numbers(own.train) for own in once.clients] != [numbers(own.train) for own in other.clients]


@pytest.mark.parametrize("spec", ["shards", "dirichlet:alpha=0.5", "rotations", "shards:public=0.1"])
def test_a_seed_of_the_partition_is_every_runs_deal(spec: str) -> None:
    once, other = (deal(f"{spec}{',' if ':' in spec else ':'}seed=24", seed=seed) for seed in (0, 1))
    own = deal(spec, seed=24)
    for found in (other, own):
        assert [numbers(c.train) for c in found.everybody] == [numbers(c.train) for c in once.everybody]
        assert [numbers(c.test) for c in found.everybody] == [numbers(c.test) for c in once.everybody]
        assert (found.public is None) == (once.public is None)
        assert found.public is None or torch.equal(found.public, once.public)


@pytest.mark.parametrize("spec", ["shards", "dirichlet:alpha=5"])
def test_variants_of_one_image_stay_on_one_side(spec: str) -> None:
    found = deal(spec, numbered(70, domains=1, groups=True), validation=0.3)
    parts = [numbers(part) for own in found.clients for part in (own.train, own.test)]
    parts += [numbers(own.test) for own in found.newcomers[0].clients]
    owners = {number // 2: at for at, part in enumerate(parts) for number in part}
    assert all(owners[number // 2] == at for at, part in enumerate(parts) for number in part)


def test_as_many_new_clients_come_as_train_and_samples_bound_both() -> None:
    found = deal(new_clients=None, samples=10, validation=0.0)
    assert [len(own.train) for own in found.clients] == [10] * 4
    assert [len(own.test) for own in found.clients] == [0] * 4
    assert [len(own.test) for own in found.newcomers[0].clients] == [10] * 4


@pytest.mark.parametrize(
    ("spec", "given", "error", "sentence"),
    [
        ("shards:per_client=50", {}, UsageError, "too few for"),
        ("shards", {"clients": 0}, UsageError, "clients >= 1"),
        ("shards", {"validation": 1.0}, UsageError, "validation < 1"),
        ("shards", {"published": True}, UsageError, "--split published: partition shards pools"),
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
    dataset.domains["d1"].labels[3] = 0  # the other image of its group is of class 1
    with pytest.raises(DataError, match=r"partition shards: numbered has groups .* with several classes"):
        deal(dataset=dataset)


@pytest.mark.parametrize("spec", ["shards", "dirichlet:alpha=0.5"])
def test_public_images_are_drawn_first_and_are_nobodys_own(spec: str) -> None:
    found, word = deal(f"{spec}{',' if ':' in spec else ':'}public=0.1"), numbered(70)
    assert found.public is not None
    shown = numbers(found.public)
    own = [numbers(part) for k in (*found.clients, *found.newcomers[0].clients) for part in (k.train, k.test)]
    assert len(shown) == 14
    assert sorted([*shown, *(number for part in own for number in part)]) == list(range(140))
    for domain in word.domains.values():  # their labels are nobody's, so others change nothing
        here = [number % 70 for number in shown if number // 70 == list(word.domains).index(domain.name)]
        domain.labels[here] = (domain.labels[here] + 1) % 4
    again = deal(f"{spec}{',' if ':' in spec else ':'}public=0.1", word)
    for one, other in zip(found.clients, again.clients, strict=True):
        assert torch.equal(one.train, other.train)
        assert torch.equal(torch.as_tensor(one.labels), torch.as_tensor(other.labels))


def test_without_public_images_clients_are_those_of_before() -> None:
    one, other = deal("shards"), deal("shards:public=0")
    assert one.public is other.public is None
    assert [numbers(k.train) for k in one.clients] == [numbers(k.train) for k in other.clients]
    grouped = deal("shards:public=0.2", numbered(70, domains=1, groups=True))
    assert grouped.public is not None
    bases = {number // 2 for number in numbers(grouped.public)}
    left = [number // 2 for k in grouped.clients for number in numbers(k.train)]
    assert not bases & set(left)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("shards:public=1.5", "leaves some to clients: from 0 to below 1"),
        ("shards:public=-0.1", "leaves some to clients: from 0 to below 1"),
        ("shards:public=0.99", "139 of 140 images are public, and 1 are left for 7 clients"),
        ("shards:public=0.001", "0 of 140 images are public"),
    ],
)
def test_a_public_part_larger_than_the_data_is_refused(spec: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        deal(spec)


def test_two_images_are_left_to_train_on() -> None:
    with pytest.raises(DataError, match="a client that trains would have fewer than 2 images to train on"):
        deal("shards", samples=2, validation=0.3)
