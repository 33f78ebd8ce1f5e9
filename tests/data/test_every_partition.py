"""What holds for every partition: images of a client are in random order, and labels go to those that may have them."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from fedwca.data.dataset import Domain, FederatedDataset
from fedwca.data.federation import ClientImages, Federation
from fedwca.partitions import ClientSettings, partitions
from tests.data.test_labelled_clients import numbers

IMAGES, CLASSES = 240, 4
SPECS = {"rotations": "rotations:train=0,new=0", "superclasses": "superclasses:per_unit=2"}
"""Where a default turns images, or makes clients of too few."""


def sorted_by_class() -> FederatedDataset:
    """Two domains of images sorted by class, which hold their number in the first two pixels."""
    places, domains = np.arange(IMAGES), {}
    for index, name in enumerate(("d0", "d1")):
        pixels, number = np.zeros((IMAGES, 2, 2, 3), np.uint8), places + index * IMAGES
        pixels[:, 0, 0, :], pixels[:, 0, 1, :] = (number % 256)[:, None], (number // 256)[:, None]
        labels = places // (IMAGES // CLASSES)
        domains[name] = Domain(name, pixels, labels, part=places // 2 % 2, units=places % 6)
    return FederatedDataset("sorted", tuple(map(str, range(CLASSES))), domains)


def deal(name: str, **changes: Any) -> Federation:
    built = partitions.build(SPECS.get(name, name))
    settings = ClientSettings(**{"clients": 2, "samples": None, "seed": 0, "new_clients": 2} | changes)
    federation: Federation = built(sorted_by_class(), None if built.domain_role is None else "d0", settings)
    return federation


@pytest.mark.parametrize("name", partitions.names())
def test_images_of_a_client_are_in_random_order(name: str) -> None:
    federation, large_clients = deal(name), 0
    for client in itertools.chain(federation.clients, *(group.clients for group in federation.newcomers)):
        train, held_out = numbers(client.train), numbers(client.test)
        if len(train) + len(held_out) >= 30:
            large_clients += 1
            assert train + held_out != sorted(train + held_out)
            classes, tested = ({number % IMAGES * CLASSES // IMAGES for number in part} for part in (train, held_out))
            assert not train or classes & tested
    assert large_clients


@pytest.mark.parametrize("name", partitions.names())
def test_labels_are_those_of_training_images_of_clients_that_may_have_them(name: str) -> None:
    """Hidden labels are in the metrics alone: no other field of what training is given can hold them."""
    federation, partition = deal(name), partitions.build(name)
    assert {field.name for field in fields(ClientImages)} == {"train", "test", "labels"}
    for client, domain in zip(federation.clients, federation.metrics.domains, strict=True):
        if partition.trains_classifier and not (partition.domain_role == "target" and domain == "d0"):
            assert client.labels is not None
            assert client.labels.tolist() == [number % IMAGES * CLASSES // IMAGES for number in numbers(client.train)]
        else:
            assert client.labels is None
    assert all(client.labels is None for group in federation.newcomers for client in group.clients)


@pytest.mark.parametrize("name", partitions.names())
def test_seed_and_bound_of_images_are_those_of_the_run(name: str) -> None:
    def images(**changes: Any) -> list[list[int]]:
        return [numbers(client.train) + numbers(client.test) for client in deal(name, **changes).all_clients]

    assert images() == images(seed=0) != images(seed=1)
    assert 0 < max(map(len, images(samples=5))) <= 5 < max(map(len, images()))


@pytest.mark.parametrize("name", [name for name in partitions.names() if not partitions.build(name).has_newcomers])
def test_published_parts_are_kept_apart_where_asked(name: str) -> None:
    def parts(federation: Federation) -> list[set[int]]:
        pairs = [(client.train, client.test) for client in federation.clients]
        return [{number // 2 % 2 for images in side for number in numbers(images)} for side in zip(*pairs, strict=True)]

    assert parts(deal(name)) == [{0, 1}, {0, 1}]
    assert parts(deal(name, published_split=True)) == [{0}, {1}]
