"""Unlabeled clients with skewed classes or sizes, or one for each unit of the data; and which requests are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwca.data import FederatedDataset, read_domains
from fedwca.data.federation import Federation
from fedwca.errors import DataError, FedwcaError, InvalidConfig, UsageError
from fedwca.partitions import ClientSettings, partitions

from .examples import dataset, write_images, write_npz
from .test_partition import all_numbers, parted


def deal(spec: str, data: FederatedDataset, clients: int = 4, samples: int | None = None, seed: int = 0) -> Federation:
    partition = partitions.build(spec)
    return partition(
        partition.choose_images(data, "a"), "a", ClientSettings(clients, samples, seed, published_split=True)
    )


def counts(federation: Federation) -> np.ndarray:
    return np.array(federation.metrics.class_counts(10))


def toy(images: int = 1000) -> FederatedDataset:
    """Three domains of training images alone: with a published split, clients train on all that they have."""
    return dataset(*(parted(name, images, 0) for name in "abc"))


@pytest.mark.parametrize("by", ["class", "size"])
def test_every_image_is_one_clients_and_the_seed_decides(by: str) -> None:
    federation, again, other_seed = (deal(f"skewed_domains:by={by}", toy(), seed=seed) for seed in (3, 3, 4))
    assert federation.metrics.domains == ("b",) * 4 + ("c",) * 4
    assert sorted(n for client in federation.clients[:4] for n in all_numbers(client)) == list(range(1000))
    assert [all_numbers(client) for client in federation.clients] == [all_numbers(client) for client in again.clients]
    assert [all_numbers(client) for client in federation.clients] != [
        all_numbers(client) for client in other_seed.clients
    ]


def test_what_is_skewed() -> None:
    shares = counts(deal("skewed_domains:alpha=0.1", toy()))
    shares = shares / shares.sum(1, keepdims=True)
    assert shares.max(1).mean() > 0.25  # without skew each of ten classes would have 0.1
    even = counts(deal("skewed_domains:alpha=1000", toy()))
    assert (even / even.sum(1, keepdims=True)).max() < 0.16
    one_size = counts(deal("skewed_domains:by=client,alpha=0.1", toy()))
    assert set(one_size.sum(1)) == {250}
    assert one_size.max(1).mean() > 0.25 * 250
    sizes = counts(deal("skewed_domains:by=size,alpha=0.5", toy()))
    assert sizes.sum(1).max() > 2 * sizes.sum(1).min()
    big = sizes[sizes.sum(1).argmax()]
    assert big.max() < 0.2 * big.sum()


def test_clients_get_no_labels_and_samples_bound_them() -> None:
    federation = deal("skewed_domains:least=20", toy(), samples=50)
    assert all(client.labels is None for client in federation.clients)
    sizes = [len(all_numbers(client)) for client in federation.clients]
    assert min(sizes) >= 20
    assert max(sizes) == 50
    just_enough = deal("skewed_domains:by=client,least=250", toy())
    assert [len(all_numbers(client)) for client in just_enough.clients] == [250] * 8


def test_variants_of_one_image_stay_with_one_client() -> None:
    grouped = {name: replace(d, groups=np.arange(1000) // 5) for name, d in toy().domains.items()}
    for spec in ("skewed_domains:alpha=0.2", "skewed_domains:by=size"):
        federation = deal(spec, FederatedDataset("toy", toy().classes, grouped))
        owners = [{number // 5 for number in all_numbers(client)} for client in federation.clients[:4]]
        assert sum(map(len, owners)) == len(set().union(*owners)) == 200


def test_long_tails_of_source_and_targets_are_opposite() -> None:
    partition = partitions.build("skewed_domains:source_ratio=10,target_ratio=100")
    data = toy()
    chosen = partition.choose_images(data, "a")
    class_counts = [d.class_counts(10) for d in chosen.domains.values()]
    assert class_counts[0] == sorted(class_counts[0], reverse=True)
    assert (class_counts[0][0], class_counts[0][-1]) == (100, 10)
    assert class_counts[1] == class_counts[2] == sorted(class_counts[1])
    assert (class_counts[1][0], class_counts[1][-1]) == (1, 100)
    of_source = partition.model_copy(update={"target_ratio": 1.0}).choose_images(data, "a")
    assert of_source.domains["b"] is data.domains["b"], "it may be read through a memory map"
    assert chosen.digest() == partition.choose_images(data, "a").digest() != data.digest()
    assert partition.model_copy(update={"source_ratio": 1.0, "target_ratio": 1.0}).choose_images(data, "a") is data


def with_units(sizes: tuple[int, ...]) -> FederatedDataset:
    units = np.repeat(np.arange(len(sizes)), sizes)
    domains = {
        name: replace(d, units=units if name != "c" else units[::-1].copy())
        for name, d in toy(sum(sizes)).domains.items()
    }
    return FederatedDataset("toy", toy().classes, domains)


def test_a_client_for_each_unit() -> None:
    data = with_units((10, 30, 20, 40))
    federation = deal("unit_domains:every=true", data, clients=1)
    assert [len(all_numbers(client)) for client in federation.clients] == [10, 30, 20, 40] * 2
    assert sorted(all_numbers(federation.clients[1])) == list(range(10, 40))
    assert len(deal("unit_domains:every=true", data, clients=101).clients) == 8, "whatever --clients says"
    federations = [deal("unit_domains", data, clients=2, seed=seed) for seed in range(5)]
    assert {len(federation) for federation in federations} == {4}
    assert len({tuple(len(all_numbers(client)) for client in federation.clients) for federation in federations}) > 1


@pytest.mark.parametrize(
    ("spec", "given", "error", "sentence"),
    [
        ("skewed_domains:alpha=0", {}, InvalidConfig, "alpha: Input should be greater than 0"),
        ("skewed_domains:alpha=1e308,by=client", {}, InvalidConfig, "alpha: Input should be less than or equal"),
        ("skewed_domains:by=writer", {}, InvalidConfig, "by: Input should be 'class', 'client' or 'size'"),
        ("skewed_domains:target_ratio=0.5", {}, InvalidConfig, "target_ratio: Input should be greater than or equal"),
        ("skewed_domains:alpha=0.01,least=250", {}, DataError, "'b': a client would have fewer than 250 of its 1000"),
        ("skewed_domains:least=251", {}, DataError, "with 251 or more each; take fewer --clients or a smaller"),
        ("skewed_domains", {"clients": 2000}, UsageError, "too few for 2000 clients"),
        ("unit_domains", {}, UsageError, "domain 'b' does not say units"),
        ("unit_domains", {"data": with_units((5, 5))}, UsageError, "has 2 units, too few for 4 clients; --clients 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_dealt_is_one_sentence(
    spec: str, given: dict[str, Any], error: type[FedwcaError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence.replace(".", r"\.")):
        deal(spec, **{"data": toy(), **given})


def test_variants_in_two_units_are_refused() -> None:
    data = with_units((10, 10))
    domains = {name: replace(d, groups=np.arange(20) // 4) for name, d in data.domains.items()}
    with pytest.raises(UsageError, match="variants of one image in two units"):
        deal("unit_domains", FederatedDataset("toy", data.classes, domains), clients=2)


def test_units_of_a_folder(tmp_path: Path) -> None:
    root = write_images(tmp_path, {"day": {"cat": 2, "dog": 1}, "night": {"cat": 1, "dog": 1}})
    table = root / "day" / "units.csv"
    table.write_text("image,unit\ncat/0.png,camera 10\ndog/0.png,camera 10\ncat/1.png,anna\n")
    domains = read_domains(root, size=8).domains
    assert domains["day"].units is not None
    assert domains["day"].units.tolist() == [1, 0, 1]
    assert domains["night"].units is None
    table.write_text(table.read_text(), encoding="utf-8-sig")  # as spreadsheets write it
    assert read_domains(root, size=8).domains["day"].units.tolist() == [1, 0, 1]  # type: ignore[union-attr]
    for text, sentence in {
        "image,writer\n": "needs the columns image and unit, not image, writer",
        "image,unit\ncat/0.png,a\ncat/0.png,b\n": "line 3: cat/0.png again",
        "image,unit\ncat/0.png,\n": "line 2: cat/0.png has no unit",
        "image,unit\ncat/0.png,a\n": "says no unit of cat/1.png",
        "image,unit\ncat/0.png,a\ncat/1.png,a\ndog/0.png,a\ndog/7.png,a\n": "names dog/7.png, and there is no such",
    }.items():
        table.write_text(text)
        with pytest.raises(DataError, match=sentence):
            read_domains(root, size=8)


def test_a_unit_is_the_same_one_in_tables_and_archives_of_all_domains(tmp_path: Path) -> None:
    root = write_images(tmp_path, {"day": {"cat": 1, "dog": 1}, "night": {"cat": 1, "dog": 1}})
    for domain_name, writer in (("day", "bob"), ("night", "7")):
        (root / domain_name / "units.csv").write_text(f"image,unit\ncat/0.png,{writer}\ndog/0.png,alice\n")
    write_npz(root / "fog.npz", 2, classes=np.array(["cat", "dog"]), units=np.array([7, 0]))
    domains = read_domains(root, size=8).domains
    unit_names = {"day": ["bob", "alice"], "fog": ["7", "0"], "night": ["7", "alice"]}
    pairs = {
        (name, int(number))
        for domain_name, names in unit_names.items()
        for name, number in zip(names, np.asarray(domains[domain_name].units), strict=True)
    }
    assert len(pairs) == len({name for name, _ in pairs}) == len({number for _, number in pairs}) == 4
