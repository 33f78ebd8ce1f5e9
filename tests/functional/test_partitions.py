"""How images are dealt to clients."""

from __future__ import annotations

from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image

from fedwca.errors import UsageError
from fedwca.functional import dirichlet_partition, long_tail, rotate_images, shard_partition, unit_partition


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def cover(parts: list[np.ndarray], images: int) -> bool:
    """Whether the parts together contain each image exactly once."""
    return sorted(np.concatenate(parts).tolist()) == list(range(images))


def test_shards_have_one_class_each_and_about_one_size() -> None:
    labels = seeded(1).permutation(np.repeat(np.arange(10), [60, 70, 80, 90, 100, 61, 72, 83, 94, 105]))
    parts = shard_partition(labels, 50, 2, seeded())
    assert len(parts) == 50
    assert all(part.dtype == np.int64 for part in parts)
    assert cover(parts, len(labels))
    assert max(len(np.unique(labels[part])) for part in parts) == 2
    # 10 shards of each class; classes have 60 to 105 images.
    assert min(map(len, parts)) >= 12
    assert max(map(len, parts)) <= 22
    again = shard_partition(labels, 50, 2, seeded())
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    other_seed = shard_partition(labels, 50, 2, seeded(1))
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other_seed, strict=True))


def shard_sizes(counts: list[int], clients: int, groups: np.ndarray | None = None) -> list[list[int]]:
    """Sizes of the shards of each class, one shard a client."""
    labels = np.repeat(np.arange(len(counts)), counts)
    parts = shard_partition(labels, clients, 1, seeded(), groups=groups)
    return [sorted(len(part) for part in parts if labels[part[0]] == label) for label in range(len(counts))]


def test_shards_go_by_the_classes_where_their_number_does_not_divide() -> None:
    # 7 shards of 70, 20 and 10 images: 4.9, 1.4 and 0.7, so 4, 1 and at least 1; the seventh goes to the remainder 0.9.
    assert shard_sizes([70, 20, 10], 7) == [[14] * 5, [20], [10]]
    # 5 shards of 90, 9 and 1 images: 4.5, 0.45 and 0.05; each has one, so the first keeps 3.
    assert shard_sizes([90, 9, 1], 5) == [[30] * 3, [9], [1]]
    # 10 shards of 51, 39 and 10 images: 5.1, 3.9 and 1, so the tenth goes to the remainder 0.9.
    assert [len(sizes) for sizes in shard_sizes([51, 39, 10], 10)] == [5, 4, 1]
    # The number divides by the classes: equally many shards each, whatever the counts.
    assert shard_sizes([90, 6], 4) == [[45, 45], [3, 3]]


@pytest.mark.parametrize(
    ("counts", "shards", "expected"),
    [
        ([50, 30, 20], 7, [4, 2, 1]),  # 3.5, 2.1 and 1.4: the seventh goes to the largest remainder
        ([30, 20, 50], 7, [2, 1, 4]),
        ([96, 2, 2], 4, [2, 1, 1]),  # 3.84, 0.08 and 0.08: one each is a shard too many, and 3 gives it
        ([60, 38, 2], 5, [3, 1, 1]),  # 3, 1.9 and 0.1: then 3, 1, 1 are right at once
    ],
)
def test_shards_by_largest_remainder(counts: list[int], shards: int, expected: list[int]) -> None:
    labels = np.repeat(np.arange(3), counts)
    parts = shard_partition(labels, shards, 1, seeded())
    assert np.bincount([labels[part[0]] for part in parts]).tolist() == expected


@pytest.mark.parametrize("seed", range(6))
def test_each_shard_has_a_group_whatever_their_sizes(seed: int) -> None:
    groups = np.repeat(np.arange(4), [90, 5, 3, 2])
    parts = shard_partition(np.zeros(100, np.int64), 4, 1, seeded(seed), groups=groups)
    assert sorted(map(len, parts)) == [2, 3, 5, 90]


def test_groups_are_cut_at_the_nearest_border() -> None:
    groups = np.repeat(np.arange(3), [40, 25, 35])
    sizes = {
        tuple(len(part) for part in shard_partition(np.zeros(100, np.int64), 2, 1, seeded(s), groups=groups))
        for s in range(30)
    }
    # In any order the border nearest to 50 leaves 40, 60 or 65 on one side: 25+40 or 35 | 65, 40 | 60, 60 | 40.
    assert {tuple(sorted(pair)) for pair in sizes} == {(40, 60), (35, 65)}


def test_classes_are_cut_evenly() -> None:
    assert shard_sizes([11, 10], 6) == [[3, 4, 4], [3, 3, 4]]


def test_groups_stay_whole() -> None:
    labels = np.repeat([0, 1], 40)
    groups = np.arange(80) // 3
    parts = shard_partition(labels, 8, 1, seeded(), groups=groups)
    assert cover(parts, 80)
    for label in (0, 1):
        for group in np.unique(groups):
            members = np.flatnonzero((groups == group) & (labels == label))
            assert sum(bool(np.isin(members, part).any()) for part in parts) <= 1
    assert all(7 <= len(part) <= 13 for part in parts)
    with pytest.raises(UsageError, match="class 0 has 14 images or groups of images, too few for 20 shards"):
        shard_partition(labels, 40, 1, seeded(), groups=groups)


@pytest.mark.parametrize("seed", range(10))
def test_distinct_classes(seed: int) -> None:
    labels = np.repeat(np.arange(5), 40)
    parts = shard_partition(labels, 20, 2, seeded(seed), distinct=True)
    assert cover(parts, 200)
    assert all(len(np.unique(labels[part])) == 2 for part in parts)
    # As tight as can be: each client must have each class.
    tight = shard_partition(labels, 20, 5, seeded(seed), distinct=True)
    assert all(len(np.unique(labels[part])) == 5 for part in tight)
    plain = shard_partition(labels, 20, 2, seeded(seed))
    assert any(len(np.unique(labels[part])) == 1 for part in plain)


def test_classes_of_more_shards_are_dealt_more_often() -> None:
    # Shards 19, 19 and 2: a first client whose 2 classes were drawn alike would have the rare one in 2 of 3 deals.
    labels = np.repeat([0, 1, 2], [190, 190, 20])
    firsts = [shard_partition(labels, 20, 2, seeded(seed), distinct=True)[0] for seed in range(30)]
    assert sum(2 in labels[first] for first in firsts) < 10  # in 1 of 7 deals


def test_what_shards_refuse() -> None:
    labels = np.repeat(np.arange(4), 10)
    assert [len(part) for part in shard_partition(np.arange(4).repeat(2), 4, 1, seeded())] == [2] * 4
    with pytest.raises(UsageError, match="3 shards are too few for 4 classes"):
        shard_partition(labels, 3, 1, seeded())
    with pytest.raises(UsageError, match="too few for 20 shards"):
        shard_partition(labels, 40, 2, seeded())
    with pytest.raises(UsageError, match="3 shards cannot be dealt to 2 clients"):
        shard_partition(labels[:20], 2, 3, seeded(), distinct=True)
    with pytest.raises(UsageError, match="clients must be at least 1"):
        shard_partition(labels, 0, 2, seeded())


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, 1e6])
def test_dirichlet_by_class_uses_all_images(alpha: float) -> None:
    labels = seeded(2).integers(0, 6, 900)
    parts = dirichlet_partition(labels, 20, alpha, seeded())
    assert len(parts) == 20
    assert cover(parts, 900)
    again = dirichlet_partition(labels, 20, alpha, seeded())
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def classes_of(parts: list[np.ndarray], labels: np.ndarray) -> np.ndarray:
    return np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


@pytest.mark.parametrize("by", ["class", "client"])
def test_alpha_goes_from_one_client_to_all_alike(by: str) -> None:
    labels = np.repeat(np.arange(5), 200)
    even = classes_of(dirichlet_partition(labels, 10, 1e7, seeded(), by), labels)
    assert abs(even.sum(1) - 100).max() <= 2
    skewed = classes_of(dirichlet_partition(labels, 10, 0.01, seeded(), by), labels)
    if by == "class":
        assert even.min() >= 19
        assert (skewed.max(0) > 150).sum() >= 4
    else:
        assert even.min() >= 5
        # The last clients get what is left over, so they are not counted.
        assert (skewed[:5].max(1) > 80).sum() >= 4


def test_clients_have_classes_in_proportion_where_alpha_is_large() -> None:
    labels = np.repeat([0, 1], [900, 100])
    first = classes_of(dirichlet_partition(labels, 5, 1e7, seeded(), "client"), labels)[0]
    assert first[0] > 160  # 180 of 200 are expected; equal shares would give 100


def test_dirichlet_by_client_is_around_the_shares_of_classes() -> None:
    random = MagicMock(wraps=seeded())
    dirichlet_partition(np.repeat([0, 1], [90, 30]), 4, 0.2, random, "client")
    assert [call.args[0].tolist() for call in random.dirichlet.call_args_list] == [pytest.approx([0.15, 0.05])] * 4


def test_dirichlet_by_class_has_the_same_alpha_for_all_clients() -> None:
    random = MagicMock(wraps=seeded())
    dirichlet_partition(np.repeat([0, 1], [90, 30]), 4, 0.2, random, "class")
    assert [call.args[0].tolist() for call in random.dirichlet.call_args_list] == [[0.2] * 4]  # of each of two classes


def test_dirichlet_by_class_cuts_at_the_nearest_image() -> None:
    random = MagicMock(wraps=seeded())
    random.dirichlet.side_effect = lambda alphas, draws: np.array([[0.19, 0.34, 0.47], [0.32, 0.24, 0.44]])
    # Ten images each are cut at 1.9 and 5.3, and at 3.2 and 5.6.
    labels = np.repeat([0, 1], 10)
    parts = dirichlet_partition(labels, 3, 0.2, random, "class")
    assert classes_of(parts, labels).tolist() == [[2, 3], [3, 3], [5, 4]]


def test_dirichlet_by_client_gives_equal_sizes_without_repeats() -> None:
    labels = np.repeat(np.arange(3), [50, 5, 48])
    parts = dirichlet_partition(labels, 10, 0.05, seeded(), "client")
    assert [len(part) for part in parts] == [10] * 10
    indices = np.concatenate(parts)
    assert len(np.unique(indices)) == 100


def test_what_dirichlet_refuses() -> None:
    labels = np.arange(4)
    with pytest.raises(UsageError, match="alpha must be above 0"):
        dirichlet_partition(labels, 2, 0.0, seeded())
    with pytest.raises(UsageError, match="no rule 'images'"):
        dirichlet_partition(labels, 2, 1.0, seeded(), "images")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="clients"):
        dirichlet_partition(labels, 0, 1.0, seeded())


def test_units_are_dealt_to_clients_of_their_own() -> None:
    units = seeded(3).permutation(np.repeat([4, 9, 2], [11, 10, 3]))
    parts = unit_partition(units, 4, seeded())
    assert cover(parts, 24)
    assert [len(part) for part in parts] == [1, 1, 1, 0, 3, 3, 3, 2, 3, 3, 2, 2]
    assert [sorted(set(units[np.concatenate(parts[i : i + 4])])) for i in (0, 4, 8)] == [[2], [4], [9]]
    assert not np.array_equal(parts[4], unit_partition(units, 4, seeded(1))[4])
    with pytest.raises(UsageError, match="per_unit"):
        unit_partition(units, 0, seeded())


def test_rotation_is_pillows() -> None:
    images = seeded(4).integers(0, 256, (3, 9, 9, 3)).astype(np.uint8)
    for degrees in (15.0, -30.0, 200.0):
        turned = rotate_images(images, degrees)
        assert turned.dtype == np.uint8
        assert turned.shape == images.shape
        expected = Image.fromarray(images[1]).rotate(degrees, Image.Resampling.BICUBIC)
        assert np.array_equal(turned[1], np.asarray(expected))


def test_rotation_is_counter_clockwise() -> None:
    images = seeded(5).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    assert np.array_equal(rotate_images(images, 90), np.rot90(images, axes=(1, 2)))
    assert np.array_equal(rotate_images(images, 0), images)
    assert rotate_images(images[:0], 45).shape == (0, 8, 8, 3)


def test_long_tail_by_hand() -> None:
    labels = np.array([0] * 8 + [1] * 8 + [2] * 8)
    indices = long_tail(labels, 3, 4.0, seeded())
    assert np.bincount(labels[indices]).tolist() == [8, 4, 2]  # 8 · 4^0, 8 · 4^(-1/2), 8 · 4^-1
    assert np.bincount(labels[long_tail(labels, 3, 4.0, seeded(), reverse=True)]).tolist() == [2, 4, 8]
    assert (np.diff(indices) > 0).all()
    assert np.bincount(labels[long_tail(labels[:16], 2, 4.0, seeded())]).tolist() == [8, 2]
    assert long_tail(labels, 3, 1.0, seeded()).tolist() == list(range(24))
    halved = np.repeat(np.arange(7), 64)  # 64 · 64^(-5/6) is 2, though in floating point just below it
    assert np.bincount(halved[long_tail(halved, 7, 64.0, seeded())]).tolist() == [64, 32, 16, 8, 4, 2, 1]
    assert np.bincount(labels[long_tail(labels, 3, 1e6, seeded())]).tolist() == [8, 1, 1]
    assert len(long_tail(np.array([0, 0]), 3, 2.0, seeded())) == 2  # classes without images stay empty
    with pytest.raises(UsageError, match=r"ratio must be 1 or more, not 0\.5"):
        long_tail(labels, 3, 0.5, seeded())


def test_no_images_are_dealt_or_refused() -> None:
    none, random = np.zeros(0, np.int64), np.random.default_rng(0)
    for by in ("class", "client"):
        assert [own.tolist() for own in dirichlet_partition(none, 2, 1.0, random, by=by)] == [[], []]
    with pytest.raises(UsageError, match="labels must be at least 1, not 0"):
        shard_partition(none, 2, 2, random)
