"""Clients of one writer or superclass, clients whose images are turned, groups of new clients, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import Federation
from fedwca.errors import DataError, UsageError
from fedwca.functional import rotated
from fedwca.runs.measure_newcomers import number_newcomers
from tests.data.test_labelled_clients import deal, numbered, numbers


def with_units(dataset: FederatedDataset, every: int = 10) -> FederatedDataset:
    domains = {name: replace(one, units=np.arange(len(one)) // every) for name, one in dataset.domains.items()}
    return FederatedDataset(dataset.name, dataset.classes, domains)


def with_parts(dataset: FederatedDataset, train: int) -> FederatedDataset:
    domains = {
        name: replace(one, part=(np.arange(len(one)) >= train).astype(np.int64))
        for name, one in dataset.domains.items()
    }
    return FederatedDataset(dataset.name, dataset.classes, domains)


def owned(found: Federation) -> list[list[int]]:
    """Numbers of the images of each client that trains, then of each new one."""
    own = [numbers(client.train) + numbers(client.test) for client in found.clients]
    return own + [numbers(client.test) for group in found.newcomers for client in group.clients]


def test_a_writer_is_a_client_and_who_trains_is_drawn() -> None:
    data = with_units(numbered(80, domains=1))
    once, other = deal("writers", data), deal("writers", data, seed=1)
    assert all(len({number // 10 for number in own}) == 1 and len(own) == 10 for own in owned(once))
    writers = [own[0] // 10 for own in owned(once)]
    assert len(set(writers)) == 7
    assert writers != [own[0] // 10 for own in owned(other)]


def test_a_superclass_has_several_clients() -> None:
    found = owned(deal("superclasses:per_unit=4", with_units(numbered(80, domains=1), 40)))
    assert sorted(len(own) for own in found) == [10] * 7
    assert all(len({number // 40 for number in own}) == 1 for own in found)
    assert len({number for own in found for number in own}) == 70


def test_turned_clients_and_groups_by_angle() -> None:
    found = deal("rotations:train=0+90,new=180+270", numbered(70, domains=1), new_clients=3, validation=0.5)
    whole = numbered(70, domains=1).domains["d0"].images
    assert [group.label for group in found.newcomers] == ["180 degrees", "270 degrees"]
    assert [len(group) for group in found.newcomers] == [2, 1]
    seen: list[int] = []
    turned = [(client.train, degrees) for client, degrees in zip(found.clients, (0, 90, 0, 90), strict=True)]
    turned += [(client.test, degrees) for client, degrees in zip(found.clients, (0, 90, 0, 90), strict=True)]
    turned += [(client.test, 180) for client in found.newcomers[0].clients]
    turned += [(client.test, 270) for client in found.newcomers[1].clients]
    for images, degrees in turned:
        back = torch.from_numpy(rotated(images.permute(0, 2, 3, 1).numpy().copy(), -degrees)).permute(0, 3, 1, 2)
        own = numbers(back)
        assert (whole[own] == back.permute(0, 2, 3, 1).numpy()).all()
        seen += own
    assert sorted(seen) == list(range(70))


def test_new_clients_of_several_alphas_share_the_test_part() -> None:
    found = deal("dirichlet:alpha=1,new=0.01+100", with_parts(numbered(70), 50), clients=3, new_clients=2)
    assert [group.label for group in found.newcomers] == ["alpha 0.01", "alpha 100"]
    train = [number for own in owned(found)[:3] for number in own]
    assert sorted(train) == [*range(50), *range(70, 120)]
    for group in found.newcomers:
        mine = sorted(number for client in group.clients for number in numbers(client.test))
        assert mine == [*range(50, 70), *range(120, 140)]
        assert bool(group.metrics.counted.all())
    assert found.measured == ("training clients",) * 3 + ("alpha 0.01",) * 2 + ("alpha 100",) * 2
    cut = deal("dirichlet:alpha=5,new=5", numbered(70, groups=True), clients=3, new_clients=4)
    parts = owned(cut)
    assert sum(map(len, parts[3:])) == pytest.approx(80, abs=4)
    assert sorted(number for own in parts for number in own) == list(range(140))


@pytest.mark.parametrize("by", ["class", "client"])
def test_parts_of_which_one_is_empty_are_cut_at_random(by: str) -> None:
    spec = f"dirichlet:alpha=5,new=5,by={by}"
    assert owned(deal(spec, with_parts(numbered(70), 70))) == owned(deal(spec, numbered(70)))


def test_new_clients_are_not_all_without_images() -> None:
    for seed in range(30):
        (new,) = deal("dirichlet:alpha=0.0001", clients=1, new_clients=1, seed=seed).newcomers
        assert len(new.clients[0].test) > 0


def test_new_clients_may_keep_a_part_of_their_images() -> None:
    whole, some = deal(), deal("shards:kept=0.1+0.5+1")
    (_, _, all_of_them) = some.newcomers
    assert [group.label for group in some.newcomers] == ["10 % of images", "50 % of images", "100 % of images"]
    assert owned(whole) == owned(Federation(some.clients, some.metrics, (all_of_them,)))
    for k, client in enumerate(all_of_them.clients):
        for group, share in zip(some.newcomers, (0.1, 0.5, 1), strict=True):
            kept = numbers(client.test)[: round(share * len(client.test))]
            assert numbers(group.clients[k].test) == kept
            assert group.metrics.test_images()[k] == len(kept)
    both = deal("rotations:new=15,kept=0.5+1")
    assert [group.label for group in both.newcomers] == ["15 degrees, 50 % of images", "15 degrees, 100 % of images"]
    # What is drawn for a client is the same whatever it keeps, and another client's at another angle.
    clients = len(all_of_them)
    assert number_newcomers(some.newcomers) == 3 * list(range(clients))
    two = deal("rotations:new=15+45,kept=0.5+1")
    (_, first, _, second) = map(len, two.newcomers)
    one, other = list(range(first)), list(range(first, first + second))
    assert number_newcomers(two.newcomers) == [*one, *one, *other, *other]


def test_a_new_client_keeps_one_image_at_least() -> None:
    assert [len(own.test) for own in deal("shards:kept=0.001").newcomers[0].clients] == [1, 1, 1]


@pytest.mark.parametrize(
    ("spec", "given", "error", "sentence"),
    [
        ("dirichlet:alpha=0", {}, UsageError, r"dirichlet\.alpha: Input should be greater than 0 \(given '0'\)$"),
        ("dirichlet:alpha=-1", {}, UsageError, r"dirichlet\.alpha: Input should be greater than 0"),
        ("dirichlet:alpha=1e308,by=client", {}, UsageError, r"alpha: Input should be less than or equal to 1000000"),
        ("dirichlet:new=0.1+1e308", {}, UsageError, r"new\.1: Input should be less than or equal to 1000000"),
        ("dirichlet:new=0.1+0", {}, UsageError, r"new\.1: Input should be greater than 0 \(given '0'\)$"),
        ("dirichlet:new=0.1+0.1", {}, UsageError, "has 0.1 twice"),
        ("shards:kept=0", {}, UsageError, r"kept\.0: Input should be greater than 0 \(given '0'\)$"),
        ("shards:kept=1.5", {}, UsageError, r"kept\.0: Input should be less than or equal to 1 \(given '1\.5'\)$"),
        ("shards:kept=many", {}, UsageError, r"kept\.0: Input should be a valid number.* \(given 'many'\)$"),
        ("rotations:train=north", {}, UsageError, r"train\.0: Input should be a valid number.* \(given 'north'\)$"),
        ("writers", {}, UsageError, "partition writers: numbered does not say writers; .*key 'units'"),
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
