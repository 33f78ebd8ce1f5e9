"""Clients of one writer or superclass, with rotated images, groups of new clients, and which requests are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import Federation
from fedwca.errors import DataError, UsageError
from fedwca.functional import dirichlet_partition, rotate_images
from fedwca.runs.records.measure_newcomers import number_newcomers
from tests.data.test_labelled_clients import deal, numbered, numbers


def with_units(dataset: FederatedDataset, size: int = 10) -> FederatedDataset:
    domains = {name: replace(domain, units=np.arange(len(domain)) // size) for name, domain in dataset.domains.items()}
    return FederatedDataset(dataset.name, dataset.classes, domains)


def with_parts(dataset: FederatedDataset, train: int) -> FederatedDataset:
    domains = {
        name: replace(domain, part=(np.arange(len(domain)) >= train).astype(np.int64))
        for name, domain in dataset.domains.items()
    }
    return FederatedDataset(dataset.name, dataset.classes, domains)


def owned(federation: Federation) -> list[list[int]]:
    """Numbers of the images of each client: first of those that train, then of the new ones."""
    parts = [numbers(client.train) + numbers(client.test) for client in federation.clients]
    return parts + [numbers(client.test) for group in federation.newcomers for client in group.clients]


def test_a_writer_is_a_client_and_who_trains_is_drawn() -> None:
    data = with_units(numbered(80, domains=1))
    first, second = deal("writers", data), deal("writers", data, seed=1)
    assert all(len({number // 10 for number in part}) == 1 and len(part) == 10 for part in owned(first))
    writers = [part[0] // 10 for part in owned(first)]
    assert len(set(writers)) == 7
    assert writers != [part[0] // 10 for part in owned(second)]


def test_a_superclass_has_several_clients() -> None:
    parts = owned(deal("superclasses:per_unit=4", with_units(numbered(80, domains=1), 40)))
    assert sorted(len(part) for part in parts) == [10] * 7
    assert all(len({number // 40 for number in part}) == 1 for part in parts)
    assert len({number for part in parts for number in part}) == 70


def test_turned_clients_and_groups_by_angle() -> None:
    federation = deal("rotations:train=0+90,new=180+270", numbered(70, domains=1), new_clients=3, validation=0.5)
    originals = numbered(70, domains=1).domains["d0"].images
    assert [group.label for group in federation.newcomers] == ["180 degrees", "270 degrees"]
    assert [len(group) for group in federation.newcomers] == [2, 1]
    seen: list[int] = []
    rotated_images = [
        (client.train, degrees) for client, degrees in zip(federation.clients, (0, 90, 0, 90), strict=True)
    ]
    rotated_images += [
        (client.test, degrees) for client, degrees in zip(federation.clients, (0, 90, 0, 90), strict=True)
    ]
    rotated_images += [(client.test, 180) for client in federation.newcomers[0].clients]
    rotated_images += [(client.test, 270) for client in federation.newcomers[1].clients]
    for images, degrees in rotated_images:
        rotated_back = rotate_images(images.permute(0, 2, 3, 1).numpy().copy(), -degrees)
        restored = torch.from_numpy(rotated_back).permute(0, 3, 1, 2)
        positions = numbers(restored)
        assert (originals[positions] == restored.permute(0, 2, 3, 1).numpy()).all()
        seen += positions
    assert sorted(seen) == list(range(70))


def test_new_clients_of_several_alphas_share_the_test_part() -> None:
    federation = deal("dirichlet:alpha=1,new=0.01+100", with_parts(numbered(70), 50), clients=3, new_clients=2)
    assert [group.label for group in federation.newcomers] == ["alpha 0.01", "alpha 100"]
    train = [number for part in owned(federation)[:3] for number in part]
    assert sorted(train) == [*range(50), *range(70, 120)]
    for group in federation.newcomers:
        group_numbers = sorted(number for client in group.clients for number in numbers(client.test))
        assert group_numbers == [*range(50, 70), *range(120, 140)]
        assert bool(group.metrics.counted.all())
    assert federation.measured_domains == ("training clients",) * 3 + ("alpha 0.01",) * 2 + ("alpha 100",) * 2
    cut = deal("dirichlet:alpha=5,new=5", numbered(70, groups=True), clients=3, new_clients=4)
    parts = owned(cut)
    assert sum(map(len, parts[3:])) == pytest.approx(80, abs=4)
    assert sorted(number for part in parts for number in part) == list(range(140))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("dirichlet:alpha=3,by=client", [(7, 3.0, "client")]),
        ("dirichlet:alpha=3,by=client,new=0.5+100", [(4, 3.0, "client"), (3, 0.5, "client"), (3, 100.0, "client")]),
        ("dirichlet:alpha=30,new=50", [(4, 30.0, "class"), (3, 50.0, "class")]),
    ],
)
def test_each_kind_of_client_has_its_own_alpha(spec: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def spy(labels: Any, clients: int, alpha: float, random: Any, by: Any = "class") -> Any:
        drawn.append((clients, alpha, by))
        return dirichlet_partition(labels, clients, alpha, random, by)

    monkeypatch.setattr("fedwca.partitions.dirichlet.dirichlet_partition", spy)
    deal(spec, numbered(280))
    assert drawn == expected


@pytest.mark.parametrize("by", ["class", "client"])
def test_parts_of_which_one_is_empty_are_cut_at_random(by: str) -> None:
    spec = f"dirichlet:alpha=5,new=5,by={by}"
    assert owned(deal(spec, with_parts(numbered(70), 70))) == owned(deal(spec, numbered(70)))


def test_new_clients_are_not_all_without_images() -> None:
    for seed in range(30):
        (new,) = deal("dirichlet:alpha=0.0001", clients=1, new_clients=1, seed=seed).newcomers
        assert len(new.clients[0].test) > 0


def test_new_clients_may_keep_a_part_of_their_images() -> None:
    full, partial = deal(), deal("shards:kept=0.1+0.5+1")
    (_, _, all_of_them) = partial.newcomers
    assert [group.label for group in partial.newcomers] == ["10 % of images", "50 % of images", "100 % of images"]
    assert owned(full) == owned(Federation(partial.clients, partial.metrics, (all_of_them,)))
    for k, client in enumerate(all_of_them.clients):
        for group, share in zip(partial.newcomers, (0.1, 0.5, 1), strict=True):
            expected = numbers(client.test)[: round(share * len(client.test))]
            assert numbers(group.clients[k].test) == expected
            assert group.metrics.test_images()[k] == len(expected)
    both = deal("rotations:new=15,kept=0.5+1")
    assert [group.label for group in both.newcomers] == ["15 degrees, 50 % of images", "15 degrees, 100 % of images"]
    # A client has the same random draws whatever share it keeps; at another angle it is another client.
    clients = len(all_of_them)
    assert number_newcomers(partial.newcomers) == 3 * list(range(clients))
    two = deal("rotations:new=15+45,kept=0.5+1")
    (_, first, _, second) = map(len, two.newcomers)
    first_numbers, second_numbers = list(range(first)), list(range(first, first + second))
    assert number_newcomers(two.newcomers) == [*first_numbers, *first_numbers, *second_numbers, *second_numbers]


def test_a_new_client_keeps_one_image_at_least() -> None:
    assert [len(client.test) for client in deal("shards:kept=0.001").newcomers[0].clients] == [1, 1, 1]


@pytest.mark.parametrize(
    ("spec", "given", "error", "sentence"),
    [
        ("dirichlet:alpha=0", {}, UsageError, r"dirichlet\.alpha: Input should be greater than 0 \(given '0'\)$"),
        ("dirichlet:alpha=-1", {}, UsageError, r"dirichlet\.alpha: Input should be greater than 0"),
        ("dirichlet:alpha=1e308,by=client", {}, UsageError, r"alpha: Input should be less than or equal to 1000000"),
        ("dirichlet:new=0.1+1e308", {}, UsageError, r"new\.1: Input should be less than or equal to 1000000"),
        ("dirichlet:new=0.1+0", {}, UsageError, r"new\.1: Input should be greater than 0 \(given '0'\)$"),
        ("dirichlet:new=0.1+0.1", {}, UsageError, "has 0.1 twice"),
        ("dirichlet:new=0.1234567+0.12345671", {}, UsageError, "has 0.123457 twice"),
        ("shards:kept=0", {}, UsageError, r"kept\.0: Input should be greater than 0 \(given '0'\)$"),
        ("shards:kept=1.5", {}, UsageError, r"kept\.0: Input should be less than or equal to 1 \(given '1\.5'\)$"),
        ("shards:kept=many", {}, UsageError, r"kept\.0: Input should be a valid number.* \(given 'many'\)$"),
        ("rotations:train=north", {}, UsageError, r"train\.0: Input should be a valid number.* \(given 'north'\)$"),
        ("rotations", {"clients": 2}, UsageError, "--clients 2: partition rotations has 3 angles in 'train'"),
        (
            *("rotations:new=15+45+75", {"new_clients": 2}, UsageError),
            r"--new-clients 2: .* has 3 angles in 'new', .* \(--set partition\.rotations\.new=15\)",
        ),
        ("writers", {}, UsageError, "partition writers: numbered does not say writers; .*key 'units'.*/units.csv"),
        ("superclasses", {}, UsageError, "partition superclasses: numbered does not say superclasses"),
        ("shards:per_client=100", {"dataset": numbered(20)}, UsageError, "too few for .* shards"),
        ("shards:per_client=1", {"clients": 1, "new_clients": 1}, UsageError, "too few for 4 classes"),
        (
            *("writers", {"dataset": with_units(numbered(70, domains=1), 20)}, UsageError),
            "numbered makes 4 clients, too few for 4 that train and 3 new ones; lower --clients or --new-clients",
        ),
        (
            "writers",
            {"dataset": with_units(numbered(14, domains=1), 1)},
            DataError,
            "fewer than 2 images to train on, in 100 deals",
        ),
        ("rotations", {"dataset": numbered(4)}, DataError, "fewer than 2 images"),
        *(
            (
                f"dirichlet:new=5,by={by}",
                {"dataset": with_parts(numbered(70), 69), "new_clients": 5},
                DataError,
                "numbered for clients that are new has 2 images without their variants, too few for 5",
            )
            for by in ("class", "client")
        ),
    ],
    ids=str,
)
def test_what_cannot_be_dealt_is_said_in_a_sentence(
    spec: str, given: dict[str, Any], error: Any, sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as caught:
        deal(spec, **given)
    assert len(str(caught.value).splitlines()) == 1
