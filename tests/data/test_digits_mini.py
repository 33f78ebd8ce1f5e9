from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from fedwca.data import Domain, FederatedDataset, cache_dir, partition
from fedwca.datasets import datasets, digits_mini
from fedwca.datasets._digits_mini_glyphs import BUILT_IN, FACES, draw_glyph, load_handwriting
from fedwca.datasets.digits_mini import DigitsMini, draw_domain


@pytest.fixture(scope="module")
def drawn(private_cache: Path) -> FederatedDataset:
    return DigitsMini(root=private_cache).load()


def test_five_balanced_domains_of_colour_images(drawn: FederatedDataset) -> None:
    assert tuple(drawn.domains) == ("handwritten", "photo", "printed", "street", "neon")
    for domain in drawn.domains.values():
        assert domain.images.shape == (2200, 32, 32, 3)
        assert domain.class_counts(10) == [220] * 10


@pytest.mark.parametrize("name", DigitsMini.domains)
def test_drawing_again_gives_the_same_bits(drawn: FederatedDataset, name: str) -> None:
    load_handwriting.cache_clear()
    draw_glyph.cache_clear()
    small, full = draw_domain(name, 12), drawn.domains[name]
    chosen = np.concatenate([np.arange(220 * label, 220 * label + 12) for label in range(10)])
    assert (small.images == full.images[chosen]).all()
    assert (small.labels == full.labels[chosen]).all()
    assert small.groups is not None
    assert full.groups is not None
    assert (small.groups == full.groups[chosen]).all()


def test_no_two_images_are_alike(drawn: FederatedDataset) -> None:
    images = np.concatenate([domain.images for domain in drawn.domains.values()])
    assert len({image.tobytes() for image in images}) == len(images)


def test_bases_are_disjoint_between_domains(drawn: FederatedDataset) -> None:
    groups = {name: set(domain.groups.tolist()) for name, domain in drawn.domains.items() if domain.groups is not None}
    assert len(groups) == 5
    assert all(not groups[a] & groups[b] for a, b in combinations(groups, 2))
    written = groups["handwritten"] | groups["photo"] | groups["neon"]
    assert written == set(range(1797))
    faces = [face for family in FACES.values() for face in family]
    assert len(faces) == len(set(faces))
    assert BUILT_IN in faces


def test_groups_are_small_and_of_one_class(drawn: FederatedDataset) -> None:
    for domain in drawn.domains.values():
        assert domain.groups is not None
        pairs = set(zip(domain.groups.tolist(), domain.labels.tolist(), strict=True))
        _, sizes = np.unique(domain.groups, return_counts=True)
        assert len(pairs) == len(sizes)
        assert sizes.max() <= 4


def test_handwriting_keeps_its_label(drawn: FederatedDataset) -> None:
    _, digits = load_handwriting()
    for name in digits_mini.WRITTEN:
        domain = drawn.domains[name]
        assert domain.groups is not None
        assert (digits[domain.groups] == domain.labels).all()


def test_a_partition_of_it_has_no_leaks(drawn: FederatedDataset) -> None:
    federation = partition(drawn, "handwritten", clients=8, samples=None, seed=0)
    assert len(federation) == 32
    assert {len(c.train) + len(c.test) for c in federation.clients} <= set(range(225, 237))  # 84 % of 270 to 280


def test_it_is_kept_and_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"drawn": 0}

    def few(name: str) -> Domain:
        counts["drawn"] += 1
        return draw_domain(name, 2)

    monkeypatch.setattr(digits_mini, "draw_domain", few)
    source = datasets.build("digits-mini")
    first, second = source.load(), source.load()
    assert counts["drawn"] == 5
    assert first.digest() == second.digest()
    (cached,) = cache_dir().iterdir()
    assert cached.name.startswith(f"digits_mini-v{digits_mini.VERSION}-")
    cached.write_bytes(cached.read_bytes()[:1000])
    assert source.load().digest() == first.digest()
    assert counts["drawn"] == 10
    assert source.load(16).domains["neon"].images.shape == (20, 16, 16, 3)


def test_a_folder_that_cannot_be_written_costs_only_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(digits_mini, "draw_domain", lambda name: draw_domain(name, 1))
    (tmp_path / "file").write_text("")
    assert len(DigitsMini(root=tmp_path / "file").load().domains) == 5


def test_domains_differ_enough_to_matter(drawn: FederatedDataset) -> None:
    """A nearest-class-mean classifier of one domain is mostly right in that domain and often wrong in the others."""
    grey = {name: domain.images.mean(3).reshape(-1, 8, 4, 8, 4).mean((2, 4)) for name, domain in drawn.domains.items()}
    source_images = grey["handwritten"].reshape(2200, -1)
    labels = drawn.domains["handwritten"].labels
    means = np.stack([source_images[labels == label][:150].mean(0) for label in range(10)])

    def accuracy(images: np.ndarray, true_labels: np.ndarray) -> float:
        distances = ((images.reshape(len(images), 1, -1) - means) ** 2).sum(2)
        return float((distances.argmin(1) == true_labels).mean())

    unseen = np.arange(2200) % 220 >= 150
    assert accuracy(source_images[unseen], labels[unseen]) > 0.75
    for name in ("photo", "printed", "street", "neon"):
        assert accuracy(grey[name], drawn.domains[name].labels) < 0.6
