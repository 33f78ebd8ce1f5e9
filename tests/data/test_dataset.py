from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.data import Domain, FederatedDataset, partition
from fedwca.errors import DataError

from .examples import dataset, domain


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int64), r"uint8 \[N, H, W, 3\], not uint8 \[2, 4, 4\]"),
        (np.zeros((2, 4, 4, 3)), np.zeros(2, np.int64), "not float64"),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2, np.int32), r"labels of domain 'x' must be int64 \[N\]"),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(3, np.int64), "has 2 images but 3 labels"),
        (np.zeros((0, 4, 4, 3), np.uint8), np.zeros(0, np.int64), "is empty"),
        (
            torch.zeros(2, 4, 4, 3).byte(),
            np.zeros(2, np.int64),
            r"be an array of numpy, uint8 \[N, H, W, 3\], not a Tensor",
        ),
        (np.zeros((2, 4, 4, 3), np.uint8), [0, 0], r"labels of domain 'x' must be an array of numpy, .*, not a list"),
    ],
)
def test_a_domain_is_checked_when_made(images: Any, labels: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Domain("x", images, labels)


def test_parts_are_0_or_1_and_one_for_each_image() -> None:
    images, labels = np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2, np.int64)
    assert Domain("x", images, labels, part=np.array([0, 1])).part is not None
    with pytest.raises(DataError, match=r"part of domain 'x' must be 0 \(training\) or 1 \(test\)"):
        Domain("x", images, labels, part=np.array([1, 2]))
    with pytest.raises(DataError, match="has 2 images but 3 part"):
        Domain("x", images, labels, part=np.array([0, 1, 1]))
    with pytest.raises(DataError, match=r"part of domain 'x' must be int64 \[N\]"):
        Domain("x", images, labels, part=np.array([0.0, 1.0]))


def test_a_data_set_is_checked_when_made() -> None:
    domain_a = domain("a", 3)
    for classes, domains in (
        (("0",), {}),
        ((), {"a": domain_a}),
        (("0", "0"), {"a": domain_a}),
        (("0", "1", "2"), {"b": domain_a}),
    ):
        with pytest.raises(DataError, match="data set 'x'"):
            FederatedDataset("x", classes, domains)


@pytest.mark.parametrize("names", [("Real World", "real_world"), ("k\u00f6ln", "ko\u0308ln")])
def test_domains_that_are_found_by_the_same_name_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(DataError, match="has domains of the same name"):
        FederatedDataset("x", ("0",), {name: domain(name, 3) for name in names})


@pytest.mark.parametrize(
    ("classes", "domains", "says"),
    [
        ((0, 1), {"a": domain("a", 3)}, r"needs the names of its classes as a tuple of texts, not \(0, 1\)"),
        ("0", {"a": domain("a", 3)}, "needs the names of its classes as a tuple of texts, not '0'"),
        (("0",), [domain("a", 3)], r"at least one domain, in a mapping by name, not \[<Domain 'a'"),
    ],
)
def test_names_of_classes_are_texts_and_domains_have_names(classes: Any, domains: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        FederatedDataset("x", classes, domains)


def test_what_holds_images_is_shown_in_a_line() -> None:
    data = dataset(domain("a", 9), domain("b", 30))
    federation = partition(data, "a", clients=2, samples=None, seed=0)
    assert repr(data.domains["a"]) == "<Domain 'a': 9 images of 4×4>"
    assert repr(data) == "<FederatedDataset 'toy': 10 classes, images by domain: a (9), b (30)>"
    assert repr(federation) == "<Federation of 2 clients: b>"
    assert repr(federation.clients[0]) == "<ClientImages: 10 to train, 3 to test>"


def test_digest_depends_on_content_alone() -> None:
    first, again = dataset(domain("a", 9)), dataset(domain("a", 9))
    assert first.digest() == again.digest()
    assert len(first.digest()) == 64
    changed = [dataset(domain("b", 9)), dataset(domain("a", 8)), dataset(domain("a", 9), classes=11)]
    changed.append(dataset(domain("a", 9, classes=3)))
    assert len({first.digest(), *(data.digest() for data in changed)}) == 5


def test_the_digest_of_splits_is_of_what_is_said_besides_images() -> None:
    def split(**fields: Any) -> str | None:
        data = dataset(replace(domain("a", 4), **fields))
        assert data.digest() == plain.digest()
        return data.split_digest()

    plain = dataset(domain("a", 4))
    assert plain.split_digest() is None
    first, second = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
    variants: list[dict[str, Any]] = [{"groups": first}, {"groups": second}, {"units": first}, {"part": first}]
    digests = [split(**variant) for variant in [*variants, {"groups": first, "units": first}]]
    assert len({*digests, None}) == 6
    assert split(groups=first) == digests[0]
    assert len(str(digests[0])) == 64


def test_resizing_keeps_flat_images_flat_and_labels_as_they_are() -> None:
    flat = Domain("a", np.full((3, 8, 6, 3), 77, np.uint8), np.arange(3), np.arange(3))
    resized = dataset(flat).resized(5)
    assert resized.domains["a"].images.shape == (3, 5, 5, 3)
    assert (resized.domains["a"].images == 77).all()
    assert resized.domains["a"].groups is not None
    assert resized.resized(5) is resized
