"""Every partition gives a client its images in random order, whatever the order in the data set."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedwca.data.dataset import Domain, FederatedDataset
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


@pytest.mark.parametrize("name", partitions.names())
def test_images_of_a_client_are_in_random_order(name: str) -> None:
    built = partitions.build(SPECS.get(name, name))
    settings = ClientSettings(clients=2, samples=None, seed=0, new_clients=2)
    federation = built(sorted_by_class(), None if built.domain_role is None else "d0", settings)
    large_clients = 0
    for client in itertools.chain(federation.clients, *(group.clients for group in federation.newcomers)):
        train, held_out = numbers(client.train), numbers(client.validation) + numbers(client.test)
        if len(train) + len(held_out) >= 30:
            large_clients += 1
            assert train + held_out != sorted(train + held_out)
            classes, tested = ({number % IMAGES * CLASSES // IMAGES for number in part} for part in (train, held_out))
            assert not train or classes & tested
    assert large_clients
