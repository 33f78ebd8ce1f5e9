"""Clusterers on made-up signatures."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from fedwca.clusterers import clusterers
from fedwca.clusterers._kmeans import best_kmeans
from fedwca.clusterers.ada_bn import AdaBN
from fedwca.clusterers.finch import Finch
from fedwca.core.interfaces import Clusterer
from fedwca.errors import UsageError
from tests.functional.clients import collinear

every = pytest.mark.parametrize("clusterer", [clusterers.build(name) for name in clusterers.names()], ids=str)


@dataclass(frozen=True)
class FakeSignatures:
    """Signatures that are one matrix, whatever is asked for."""

    values: Tensor
    truth: Tensor

    @property
    def clients(self) -> int:
        return len(self.values)

    def layer_weights(self, index: int) -> Tensor:
        return self.values * index

    @property
    def layer_count(self) -> int:
        return 3

    def parameters(self) -> Tensor:
        return self.values

    def batch_norm_statistics(self) -> Tensor:
        return self.values

    def source_signatures(self) -> FakeSignatures:
        return FakeSignatures(self.values.mean(0, keepdim=True), self.truth[:1])

    def styles(self, share: float, images: int) -> Tensor:
        return self.values

    def moments(self, layers: str) -> Tensor:
        return self.values

    def domains(self) -> Tensor:
        return self.truth


def signatures(groups: list[int], seed: int = 0) -> FakeSignatures:
    """Clients near one common model; the shift by group is ten times larger than that by client."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.tensor(groups)
    common = torch.randn(40, generator=draw, dtype=torch.float64)
    centres = torch.randn(int(truth.max()) + 1, 40, generator=draw, dtype=torch.float64)
    individual = torch.randn(len(groups), 40, generator=draw, dtype=torch.float64)
    return FakeSignatures(common + 1e-3 * centres[truth] + 1e-4 * individual, truth)


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two labelings are the same partition, whatever the numbers."""
    return torch.equal(a[:, None] == a, b[:, None] == b)


@every
@pytest.mark.parametrize("groups", [[0], [0, 0], [0, 1], [0, 0, 1, 1, 2, 2, 2], [0] * 5], ids=str)
def test_clusters_are_numbered_without_gaps(clusterer: Clusterer, groups: list[int]) -> None:
    labels = clusterer(signatures(groups))
    assert labels.shape == (len(groups),)
    assert labels.dtype == torch.int64
    assert labels.unique().tolist() == list(range(int(labels.max()) + 1))


@every
def test_the_order_of_clients_does_not_matter(clusterer: Clusterer) -> None:
    original = signatures([0, 0, 1, 1, 2, 2, 2])
    order = torch.tensor([3, 6, 0, 5, 1, 4, 2])
    permuted = FakeSignatures(original.values[order], original.truth[order])
    assert same(clusterer(original)[order], clusterer(permuted))


@every
def test_only_oracles_ask_for_the_truth(clusterer: Clusterer) -> None:
    class Guarded(FakeSignatures):
        def domains(self) -> Tensor:
            raise PermissionError("no oracle")

    fake = signatures([0, 0, 1, 1])
    if clusterer.oracle:
        assert torch.equal(clusterer(fake), fake.truth)
    else:
        clusterer(Guarded(fake.values, fake.truth))


@pytest.mark.parametrize("fields", [{}, {"signature": 3}, {"signature": "all"}, {"reference": "source"}], ids=str)
def test_finch_finds_groups_that_are_apart(fields: dict[str, object]) -> None:
    fake = signatures([0, 0, 0, 1, 1, 1, 2, 2, 2], seed=2)
    labels = Finch(**fields)(fake)  # type: ignore[arg-type]
    assert same(labels, fake.truth)


@pytest.mark.parametrize("name", ["kmeans", "ladd"])
def test_silhouette_finds_the_number_of_groups(name: str) -> None:
    fake = signatures([0, 0, 0, 1, 1, 1, 2, 2, 2], seed=2)
    assert clusterers.build(name)(fake).tolist() == fake.truth.tolist()
    assert clusterers.build({"name": name, "least": 2, "most": 2})(fake).max() == 1


@pytest.mark.parametrize("name", ["kmeans", "ladd"])
def test_a_number_of_groups_that_cannot_be_is_refused_or_the_nearest(name: str) -> None:
    with pytest.raises(UsageError, match=r"most.*is below least, which is 9; give most that or more"):
        clusterers.build({"name": name, "least": 9, "most": 3})
    with pytest.raises(UsageError, match="most, which is 19, is below least, which is 25"):
        clusterers.build({"name": name, "least": 25})
    fake = signatures([0, 0, 0, 1, 1, 1, 2, 2, 2], seed=2)
    assert clusterers.build({"name": name, "least": 1})(fake).tolist() == fake.truth.tolist(), "as 2"
    assert len(clusterers.build({"name": name, "least": 12})(fake).unique()) == 8, "at most K - 1"
    assert not clusterers.build({"name": name, "least": 1, "most": 1})(fake).any()


def test_kmeans_has_its_restarts_and_seed_and_of_equal_partitions_the_coarsest_is_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def spy(clusters: int, **options: int) -> KMeans:
        asked.append((clusters, options))
        return KMeans(clusters, **options)

    monkeypatch.setattr("sklearn.cluster.KMeans", spy)
    monkeypatch.setattr("sklearn.metrics.silhouette_score", lambda rows, labels: 0.5)
    fake = signatures([0, 0, 1, 1, 2, 2])
    assert clusterers.build("kmeans:most=4,restarts=3,seed=5")(fake).max() == 1
    assert asked == [(clusters, {"n_init": 3, "random_state": 5}) for clusters in (2, 3, 4)]


def test_silhouettes_of_rows_that_are_nearly_equal_keep_their_digits() -> None:
    fake = signatures([0, 0, 0, 1, 1, 1, 2, 2, 2], seed=2)
    far = FakeSignatures(fake.values + 1e6, fake.truth)  # squares of 4e13, of which 1e-2 is the last digit
    assert clusterers.build("kmeans")(far).tolist() == fake.truth.tolist()


def test_identical_clients_do_not_break_finch() -> None:
    fake = FakeSignatures(torch.ones(4, 8, dtype=torch.float64), torch.tensor([0, 0, 1, 1]))
    assert Finch()(fake).shape == (4,)


def test_finch_notes_the_sizes_of_all_levels() -> None:
    fake = signatures([0, 0, 1, 1, 2, 2, 3, 3])
    notes = Finch().notes(fake)
    assert notes["layer"] == 1
    assert "warning" not in notes
    levels = notes["levels"]
    assert levels[0] == Finch()(fake).bincount().tolist() == [2, 2, 2, 2]
    assert [sum(sizes) for sizes in levels] == [8] * len(levels)
    assert [len(sizes) for sizes in levels] == sorted((len(sizes) for sizes in levels), reverse=True)
    assert len(levels[-1]) == 1
    assert "layer" not in Finch(signature="all").notes(fake)


@every
def test_notes_are_plain(clusterer: Clusterer) -> None:
    notes = clusterer.notes(signatures([0, 0, 1, 1]))
    assert json.loads(json.dumps(notes)) == notes


class Frozen(FakeSignatures):
    """Signatures whose first two layers were not trained."""

    def layer_weights(self, index: int) -> Tensor:
        return torch.ones(len(self.values), 5, dtype=torch.float64) if index < 3 else self.values

    def source_signatures(self) -> Frozen:
        return Frozen(self.values.mean(0, keepdim=True), self.truth[:1])


def test_a_frozen_layer_is_passed_over() -> None:
    fake = signatures([0, 0, 1, 1, 2, 2])
    frozen = Frozen(fake.values, fake.truth)
    assert same(Finch()(frozen), fake.truth)
    notes = Finch().notes(frozen)
    assert notes["layer"] == 3
    assert "layer 1 is the source model's at every client, so layer 3 is compared" in notes["warning"]
    assert Finch(signature=3).notes(frozen) == {"layer": 3, "levels": notes["levels"]}


def test_updates_are_of_the_layer_that_clients_trained() -> None:
    class Deep(Frozen):
        """Layers differ in size."""

        def layer_weights(self, index: int) -> Tensor:
            return super().layer_weights(index).repeat(1, index)

        def source_signatures(self) -> Deep:
            return Deep(self.values.mean(0, keepdim=True), self.truth[:1])

    fake = signatures([0, 0, 1, 1, 2, 2])
    deep = Deep(fake.values, fake.truth)
    vectors, _ = Finch(reference="source").client_vectors(deep) or (None, None)
    assert vectors is not None
    assert torch.equal(vectors, (deep.layer_weights(3) - deep.source_signatures().layer_weights(3)).double())
    assert same(Finch(reference="source", metric="euclidean")(deep), fake.truth)


def test_an_update_of_nothing_has_no_direction() -> None:
    class Idle(FakeSignatures):
        def layer_weights(self, index: int) -> Tensor:
            return torch.cat([self.values[:2], self.source_signatures().values, self.values[2:]])

        def source_signatures(self) -> FakeSignatures:
            return FakeSignatures(torch.ones_like(self.values[:1]), self.truth[:1])

    idle = Idle(signatures([0, 0, 1, 1]).values, torch.tensor([0, 0, 0, 1, 1]))
    with pytest.raises(UsageError, match="client 2 did not train in round 0, so its update has no direction; take"):
        Finch(reference="source")(idle)
    assert len(Finch(reference="source", metric="euclidean")(idle)) == 5
    assert len(Finch()(idle)) == 5


def test_levels_and_distances_are_those_that_were_asked_for() -> None:
    values = torch.tensor([0.0, 1, 10, 11, 100, 101, 110, 111])[:, None]
    fake = FakeSignatures(values, torch.arange(8))
    for clusterer in (Finch(level=1, metric="euclidean"), AdaBN(level=1)):
        assert clusterer(fake).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert AdaBN()(fake).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    alike = FakeSignatures(torch.tensor([[1.0, 0], [2, 0], [10, 1], [11, 0]]), torch.arange(4))
    assert AdaBN()(alike).tolist() == [0, 0, 1, 1]  # by angles all would be near one another


def test_finchs_precision_is_the_one_that_was_asked_for() -> None:
    x, truth = collinear(4, 3, 500, 3e-5, 0)  # float32 sees noise alone
    fake = FakeSignatures(x, truth)
    assert same(Finch()(fake), truth)
    assert not same(Finch(precision="float32")(fake), truth)


def test_clusterers_read_what_they_are_configured_to_read() -> None:
    class Asked(FakeSignatures):
        def styles(self, share: float, images: int) -> Tensor:
            assert (share, images) == (0.2, 7)
            return self.values

        def moments(self, layers: str) -> Tensor:
            assert layers == "all"
            return self.values

    asked = Asked(signatures([0, 0, 1, 1]).values, torch.tensor([0, 0, 1, 1]))
    for specification, metric in (
        ("ladd:share=0.2,images=7", "euclidean"),
        ("ada_bn:layers=all", "euclidean"),
        ("kmeans", "euclidean"),
        ("finch", "cosine"),
        ("finch:metric=euclidean", "euclidean"),
    ):
        clusterer = clusterers.build(specification)
        assert same(clusterer(asked), asked.truth)
        vectors, of_vectors = clusterer.client_vectors(asked) or (None, None)
        assert vectors is not None
        assert torch.equal(vectors, asked.values)
        assert of_vectors == metric


def test_a_number_of_clusters_that_is_given_needs_no_silhouette() -> None:
    corners = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    assert best_kmeans(corners, 3, 3, 2, 0).tolist() == [0, 1, 2]
    assert best_kmeans(corners.repeat(3, 1), 4, 4, 2, 0).tolist() == [0, 1, 2] * 3, "no more than distinct rows"
    assert best_kmeans(corners[:1].repeat(3, 1), 2, 2, 1, 0).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("least", "most", "clients", "fewest"),
    [
        (2, 19, 8, 2),
        (2, 19, 3, 2),
        (2, 19, 2, 1),
        (1, 19, 8, 2),
        (1, 1, 8, 1),
        (5, 19, 4, 3),
        (4, 4, 4, 4),
        (4, 4, 3, 3),
    ],
)
def test_the_fewest_clusters_of_kmeans_are_known_before(least: int, most: int, clients: int, fewest: int) -> None:
    assert clusterers.get("kmeans")(least=least, most=most).fewest_clusters(clients) == fewest
    one_blob = torch.arange(clients).double()[:, None] ** 2
    assert int(best_kmeans(one_blob, least, most, 2, 0).max()) + 1 >= fewest
