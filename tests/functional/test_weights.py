"""Mixing weights of FedWCA: rows sum to 1, and eq. 8 is the composed blend of models."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional import blend_weights, cluster_means, soft_cluster_weights, tempered_softmax


def reports(k: int, c: int, seed: int, ta: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    alpha = tempered_softmax(torch.randn(k, c, generator=draw), ta)
    beta = tempered_softmax(torch.randn(k, 2, generator=draw), 0.5)
    return alpha, beta, torch.randint(0, c, (k,), generator=draw)


def test_softmax_by_hand() -> None:
    # scores 0 and 0.1 at temperature 0.1: exponents 0 and 1 -> 1/(1+e), e/(1+e)
    weights = tempered_softmax(torch.tensor([0.0, 0.1], dtype=torch.float64), 0.1)
    assert weights.tolist() == pytest.approx([0.2689414214, 0.7310585786])
    assert tempered_softmax(torch.tensor([0.0, 1.0]), 1.0).dtype == torch.float64


def test_softmax_is_shift_invariant_and_goes_to_equal_and_to_one_hot() -> None:
    scores = torch.tensor([[0.3, 0.1, 0.2], [5.0, 6.0, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(tempered_softmax(scores + 1e4, 0.05), tempered_softmax(scores, 0.05), rtol=1e-9, atol=0)
    torch.testing.assert_close(tempered_softmax(scores, 1e12), torch.full((2, 3), 1 / 3, dtype=torch.float64))
    one_hot = torch.tensor([[1.0, 0, 0], [0, 1, 0]], dtype=torch.float64)
    assert torch.equal(tempered_softmax(scores, 1e-5), one_hot)
    assert torch.equal(tempered_softmax(scores, 1e-310), one_hot)
    assert tempered_softmax(scores * 1e30, 1e-9).isfinite().all()


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_softmax_refuses_invalid_temperatures(temperature: float) -> None:
    with pytest.raises(UsageError, match="temperature"):
        tempered_softmax(torch.zeros(2), temperature)


def test_cluster_means_by_hand() -> None:
    labels = torch.tensor([0, 1, 0, 0, 1])
    third = 1 / 3
    uniform = [[third, 0, third, third, 0], [0, 0.5, 0, 0, 0.5]]
    assert cluster_means(labels, 2).tolist() == uniform
    sizes = torch.tensor([10, 30, 20, 70, 10])
    assert cluster_means(labels, 2, sizes).tolist() == [[0.1, 0, 0.2, 0.7, 0], [0, 0.75, 0, 0, 0.25]]
    present = torch.tensor([True, False, True, False, False])
    assert cluster_means(labels, 2, None, present).tolist() == [[0.5, 0, 0.5, 0, 0], [0, 0, 0, 0, 0]]
    broken = torch.tensor([1.0, torch.nan, 3.0, torch.inf, torch.nan])
    assert cluster_means(labels, 2, broken, present).tolist() == [[0.25, 0, 0.75, 0, 0], [0, 0, 0, 0, 0]]


def test_one_cluster_is_plain_federated_averaging() -> None:
    sizes = torch.tensor([1.0, 2.0, 5.0])
    assert cluster_means(torch.zeros(3, dtype=torch.long), 1, sizes).tolist() == [[0.125, 0.25, 0.625]]
    alpha, beta, labels = reports(3, 1, 0)
    soft = soft_cluster_weights(alpha, beta, labels)
    torch.testing.assert_close(soft, torch.ones(1, 1, dtype=torch.float64))
    membership = torch.ones(3, 1)
    torch.testing.assert_close(blend_weights(membership, alpha, beta, soft), torch.ones(3, 1, dtype=torch.float64))


def test_soft_clusters_by_hand() -> None:
    alpha = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]])
    beta = torch.tensor([[0.4, 0.6], [0.6, 0.4], [0.2, 0.8]])
    labels = torch.tensor([0, 0, 1])
    # R = [[0.8, 0.2], [0.4, 0.6]], B = [[0.5, 0.5], [0.2, 0.8]].
    # column sums 1.2, 0.8; model 0 mixes (0.8, 0.4)/1.2 = (2/3, 1/3); model 1 mixes (0.2, 0.6)/0.8 = (1/4, 3/4).
    # row 0: (0.5 + 0.5·2/3, 0.5·1/3) = (5/6, 1/6); row 1: (0.8·1/4, 0.2 + 0.8·3/4) = (0.2, 0.8).
    column = soft_cluster_weights(alpha, beta, labels)
    assert column.flatten().tolist() == pytest.approx([5 / 6, 1 / 6, 0.2, 0.8])
    # row: model 0 mixes (0.8, 0.2): (0.9, 0.1); model 1 mixes (0.4, 0.6): (0.32, 0.68).
    row = soft_cluster_weights(alpha, beta, labels, "row")
    assert row.flatten().tolist() == pytest.approx([0.9, 0.1, 0.32, 0.68])


def test_a_cluster_nobody_wants_keeps_its_own_model() -> None:
    alpha, beta = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    soft = soft_cluster_weights(alpha, beta, torch.tensor([0, 1]))
    # model 0: wanted by both alike: 0.5 + 0.5·0.5; model 1: wanted by nobody
    assert soft.tolist() == [[0.75, 0.25], [0.0, 1.0]]
    # Weights that are left over from a softmax are no wish either, whatever their ratio.
    alpha = torch.tensor([[1 - 1e-9, 1e-9], [1 - 3e-9, 3e-9]], dtype=torch.float64)
    assert soft_cluster_weights(alpha, beta, torch.tensor([0, 1]))[1].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("direction", ["column", "row"])
def test_a_silent_cluster_keeps_its_own_model_and_has_no_say(direction: str) -> None:
    alpha, beta, _ = reports(5, 3, 1)
    labels = torch.tensor([0, 0, 1, 1, 2])
    present = torch.tensor([True, True, True, False, False])
    soft = soft_cluster_weights(alpha, beta, labels, direction, present)
    assert soft[2].tolist() == [0, 0, 1]
    noise_alpha, noise_beta = alpha.clone(), beta.clone()
    noise_alpha[3:], noise_beta[3:] = torch.nan, torch.inf
    torch.testing.assert_close(soft_cluster_weights(noise_alpha, noise_beta, labels, direction, present), soft)
    torch.testing.assert_close(
        soft[:2], soft_cluster_weights(alpha[:3], beta[:3], labels[:3], direction)[:2], rtol=1e-12, atol=0
    )
    if direction == "column":
        assert soft[:2, 2].abs().max() == 0  # no member of cluster 2 said that it gains from 0 or 1
    nobody = soft_cluster_weights(alpha, beta, labels, direction, torch.zeros(5, dtype=torch.bool))
    assert torch.equal(nobody, torch.eye(3, dtype=torch.float64))


def test_an_unknown_direction_is_refused() -> None:
    alpha, beta, labels = reports(4, 2, 0)
    with pytest.raises(UsageError, match="direction"):
        soft_cluster_weights(alpha, beta, labels, "diagonal")


def test_shapes_that_do_not_fit_are_named() -> None:
    alpha, beta, labels = reports(4, 2, 0)
    with pytest.raises(UsageError, match=r"beta \[K, 2\] .* got \[4, 2\], \[4, 1\] and \[4\]"):
        soft_cluster_weights(alpha, beta[:, :1], labels)


@settings(max_examples=60)
@given(
    k=st.integers(1, 12),
    c=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    ta=st.sampled_from([1e-4, 0.01, 0.3, 10.0]),
    direction=st.sampled_from(["column", "row"]),
)
def test_every_row_sums_to_one(k: int, c: int, seed: int, ta: float, direction: str) -> None:
    alpha, beta, labels = reports(k, c, seed, ta)
    present = torch.rand(k, generator=torch.Generator().manual_seed(seed)) < 0.8
    soft = soft_cluster_weights(alpha, beta, labels, direction, present)
    v = blend_weights((labels[:, None] == torch.arange(c)).double(), alpha, beta, soft)
    for weights in (soft, v):
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights), dtype=torch.float64), rtol=0, atol=1e-12)
    sums = cluster_means(labels, c, None, present).sum(1)
    assert (((sums - 1).abs() < 1e-12) | (sums == 0)).all()


@pytest.mark.parametrize("direction", ["column", "row"])
def test_eq_8_is_the_composed_blend_of_models(direction: str) -> None:
    clients, clusters, size = 7, 3, 50
    alpha, beta, labels = reports(clients, clusters, 4)
    labels[:clusters] = torch.arange(clusters)
    models = torch.randn(clusters, size, dtype=torch.float64)
    # Algorithm 1, lines 18-19, in loops
    R, B = torch.zeros(clusters, clusters, dtype=torch.float64), torch.zeros(clusters, 2, dtype=torch.float64)
    for c in range(clusters):
        members = [k for k in range(clients) if labels[k] == c]
        for k in members:
            R[c] += alpha[k] / len(members)
            B[c] += beta[k] / len(members)
    soft_models = []
    for c in range(clusters):
        mixed = torch.zeros(size, dtype=torch.float64)
        for source in range(clusters):
            share = R[source, c] / R[:, c].sum() if direction == "column" else R[c, source]
            mixed += share * models[source]
        soft_models.append(B[c, 0] * models[c] + B[c, 1] * mixed)
    soft = soft_cluster_weights(alpha, beta, labels, direction)
    torch.testing.assert_close(soft @ models, torch.stack(soft_models))
    membership = (labels[:, None] == torch.arange(clusters)).double()
    v = blend_weights(membership, alpha, beta, soft)
    for k in range(clients):
        composed = beta[k, 0] * models[labels[k]]
        for c in range(clusters):
            composed = composed + beta[k, 1] * alpha[k, c] * soft_models[c]
        torch.testing.assert_close(v[k] @ models, composed)
        if direction == "column":  # the third line of eq. 7 with A[c -> c'] = R[c, c'] / column sum
            A = R / R.sum(0)
            for c in range(clusters):
                value = (labels[k] == c) * beta[k, 0] + beta[k, 1] * alpha[k, c] * B[c, 0]
                value = value + beta[k, 1] * sum(B[o, 1] * alpha[k, o] * A[c, o] for o in range(clusters))
                torch.testing.assert_close(v[k, c], value)


def test_one_hot_alpha_on_its_own_cluster_is_the_cluster_model() -> None:
    labels = torch.tensor([0, 1, 1, 2])
    membership = (labels[:, None] == torch.arange(3)).double()
    beta = reports(4, 3, 0)[1]
    soft = soft_cluster_weights(membership, beta, labels)
    torch.testing.assert_close(soft, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(blend_weights(membership, membership, beta, soft), membership)
