"""Weights of aggregators compared with values by hand or by their equations; clients answer from tables."""

from __future__ import annotations

import math
from unittest.mock import Mock

import pytest
import torch

from fedwca.aggregators import fedamp
from fedwca.aggregators.equal import Equal
from fedwca.aggregators.fedamp import FedAMP
from fedwca.aggregators.ifca import IFCA
from fedwca.aggregators.ladd import LaddAggregator
from fedwca.aggregators.mdmgb import MDMGB
from fedwca.aggregators.one_equal import OneEqual
from fedwca.aggregators.one_equal_a import OneEqualA
from fedwca.aggregators.revised_wca import RevisedWCA
from fedwca.aggregators.wca import WCA
from fedwca.aggregators.wca_l import WCAL
from fedwca.core.messages import Predictions
from fedwca.functional import soft_cluster_weights

from .fakes import FakeView, play

GIVEN = torch.tensor([0, 1, 1, 2])


def test_fedamps_attention_by_hand() -> None:
    rows = torch.tensor([[0.0], [1.0], [3.0]])
    # Squared distances 1, 4, 9; their median is 4. Two others share the step.
    near, far = math.exp(-1 / 8) / 2 / 2, math.exp(-9 / 8) / 2 / 2
    cloud = FedAMP(sigma=2).offer({}, 1, rows).personal[:, 0]
    assert cloud[0].tolist() == pytest.approx([1 - near - far, near, far])
    # The others' weights may sum to 1, but not to more.
    pushed = FedAMP(sigma=2, alpha=8).offer({}, 1, rows).personal[0, 0]
    assert pushed.tolist() == pytest.approx([0, near / (near + far), far / (near + far)])


@pytest.mark.parametrize("threads", [1, 2])
def test_fedamps_distances_do_not_depend_on_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix product, which torch's cdist takes above 25 rows, would have other bits, and squares that are not 0."""
    monkeypatch.setattr(fedamp, "COLUMNS", 1500)
    rows = 1e3 + torch.randn(30, 4000, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        weights = FedAMP().offer({}, 1, rows).personal
    finally:
        torch.set_num_threads(before)
    exact = torch.stack([(rows.double() - row).square().sum(1) for row in rows.double()])
    xi = torch.exp(-exact / exact[~torch.eye(30, dtype=torch.bool)].median()) / 29
    off_diagonal = ~torch.eye(30, dtype=torch.bool)
    torch.testing.assert_close(weights[:, 0][off_diagonal], xi[off_diagonal], rtol=1e-12, atol=0)


def test_fedamp_leaves_out_clients_that_never_uploaded() -> None:
    fedamp, rows, labels = FedAMP(sigma=2), torch.tensor([[0.0], [1.0], [3.0]]), torch.arange(3)
    heard = [torch.tensor(flags) for flags in ([True, False, False], [False, True, False])]
    alone = fedamp.next_state({}, labels, {}, heard[0])
    assert torch.equal(fedamp.offer(alone, 1, rows).personal[:, 0], torch.eye(3, dtype=torch.float64))
    pair = fedamp.next_state(alone, labels, {}, heard[1])
    assert pair["heard"].tolist() == [True, True, False]
    # Their squared distance is the median; there is one other.
    near = math.exp(-1 / 2) / 2
    expected = torch.tensor([[1 - near, near, 0], [near, 1 - near, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(fedamp.offer(pair, 2, rows).personal[:, 0], expected)
    # A checkpoint of an earlier release says nothing of it: all clients count.
    assert fedamp.next_state({"labels": labels}, labels, {}, heard[0])["heard"].all()


def test_ladd_sends_a_teacher_as_soon_as_one_differs() -> None:
    ladd, rows, everybody = LaddAggregator(start=1), torch.zeros(4, 1), torch.ones(2, dtype=torch.bool)
    state = ladd.next_state({}, torch.tensor([0, 1]), {}, everybody)
    assert state["averaged"].tolist() == [0, 0]  # round 0 comes before the first that enters
    for present, averaged, models in (([True, True], [1, 1], 1), ([True, False], [2, 1], 2)):
        state = ladd.next_state(state, torch.tensor([0, 1]), {}, torch.tensor(present))
        assert state["averaged"].tolist() == averaged
        assert ladd.offer(state, 2, rows).models_per_client == models
    assert torch.equal(ladd.offer(state, 2, rows).personal[:, 1], torch.eye(4, dtype=torch.float64)[2:])


def test_ifca_takes_the_model_of_least_loss() -> None:
    case = play(IFCA(clusters=2), torch.tensor([0, 1, 0, 1, 1, 0]))
    assert case.blend.labels is not None
    assert torch.equal(case.blend.labels, case.view.loss(case.view.shared).argmin(1))


def test_ifca_takes_no_model_without_a_loss() -> None:
    losses = torch.tensor([[1.0, math.nan, 0.5], [0.2, math.nan, 0.5]], dtype=torch.float64)
    view = Mock(shared=torch.eye(3, dtype=torch.float64), loss=lambda mixtures: losses)
    labels = IFCA().blend(1, view).labels
    assert labels is not None
    assert labels.tolist() == [2, 0]


def test_weights_of_table_3() -> None:
    membership = torch.eye(3, dtype=torch.float64)
    assert OneEqual(p=0.7).weights(membership)[0].tolist() == pytest.approx([0.7, 0.15, 0.15])
    assert Equal().weights(membership).flatten().tolist() == pytest.approx([1 / 3] * 9)
    half = play(OneEqualA(tb=0.7), GIVEN)
    mean = half.view.model(1)
    scores = torch.stack([half.view.density(half.view.own), half.view.density(mean)], 1)
    torch.testing.assert_close(half.blend.report["beta"], (scores / 0.7).softmax(1))
    received = half.view.received
    torch.testing.assert_close(received[:, 1], half.rows[-2].mean(0).expand(4, -1))
    alone = play(WCAL(ta=0.4), GIVEN)
    alpha = (alone.view.alignment(alone.view.shared) / 0.4).softmax(1)
    torch.testing.assert_close(alone.blend.report["alpha"], alpha)


def test_starts_of_table_3_by_hand() -> None:
    rows, labels = torch.tensor([[0.0], [10.0], [20.0]], dtype=torch.float64), torch.tensor([0, 2])
    for aggregator, starts in ((OneEqual(p=0.7), [0.15 * 30, 0.7 * 20 + 1.5]), (Equal(), [10, 10])):
        offer = aggregator.offer({"labels": labels}, 1, rows)
        view = FakeView(torch.zeros(2, 1, dtype=torch.float64), offer.personal @ rows, 2)
        assert (aggregator.blend(1, view).start[:, None] @ view.received).flatten().tolist() == pytest.approx(starts)
    # e^(log 3) = 3: the weights are 1/4 and 3/4.
    own, mean = torch.eye(2, dtype=torch.float64)[:, None]
    density = lambda mixture: torch.tensor([math.log(3) * float(mixture[0, 1])], dtype=torch.float64)  # noqa: E731
    blend = OneEqualA(tb=1).blend(1, Mock(own=own, model=lambda column: mean, density=density))
    assert blend.start.flatten().tolist() == pytest.approx([0.25, 0.75])
    alignment = Mock(return_value=torch.tensor([[0, math.log(3)]], dtype=torch.float64))
    blend = WCAL(ta=1).blend(1, Mock(shared=torch.eye(3, dtype=torch.float64)[1:], alignment=alignment))
    assert blend.start.flatten().tolist() == pytest.approx([0, 0.25, 0.75])


def test_absent_clients_count_with_what_they_said_last() -> None:
    wca, labels, everybody = WCA(), torch.tensor([0, 1]), torch.ones(2, dtype=torch.bool)

    def report(*alpha: float) -> dict[str, torch.Tensor]:
        column = torch.tensor(alpha, dtype=torch.float64)[:, None]
        return {"alpha": torch.cat([column, 1 - column], 1), "beta": torch.cat([1 - column, column], 1)}

    first, second = report(0.9, 0.2), report(0.6, 0.7)
    before = wca.next_state({}, labels, first, everybody)
    after = wca.next_state(before, labels, second, torch.tensor([True, False]))
    latest = report(0.6, 0.2)
    torch.testing.assert_close(after["soft"], soft_cluster_weights(latest["alpha"], latest["beta"], labels))
    revised = RevisedWCA(u=2)
    before = revised.next_state({}, labels, {}, everybody)
    before = revised.next_state(before, labels, first, everybody)
    after = revised.next_state(before, labels, second, torch.tensor([True, False]))
    assert torch.equal(after["v"][1], before["v"][1])
    assert not torch.allclose(after["v"][0], before["v"][0])


def test_two_rounds_of_three_reuse_the_weights_of_the_starts() -> None:
    revised, labels, everybody = RevisedWCA(u=3), torch.tensor([0, 1]), torch.ones(2, dtype=torch.bool)
    own, rows = torch.eye(2, dtype=torch.float64), torch.zeros(2, 1)
    report = {"alpha": torch.tensor([[0.8, 0.2], [0.4, 0.6]]).double(), "beta": torch.full((2, 2), 0.5).double()}
    state = revised.next_state({}, labels, {}, everybody)
    assert torch.equal(revised.offer(state, 1, rows).shared, own)
    state = revised.next_state(state, labels, report, everybody)
    # Half of the own model and half of alpha's mixture, of cluster models in round 1.
    v, soft = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).double(), torch.tensor([[5 / 6, 1 / 6], [1 / 8, 7 / 8]]).double()
    for number in (2, 3):
        torch.testing.assert_close(revised.offer(state, number, rows).personal, torch.stack([own, v], 1))
        assert revised.expected_reports(number) == {}
        state = revised.next_state(state, labels, {}, everybody)
    torch.testing.assert_close(revised.offer(state, 4, rows).shared, soft)
    assert revised.expected_reports(4).keys() == {"alpha", "beta"}
    # In round 4 of soft models: the first cluster's has 0.8 · 5/6 + 0.2 / 8 = 83/120 and 0.4 · 5/6 + 0.6 / 8 = 49/120.
    state = revised.next_state(state, labels, report, everybody)
    first = torch.tensor([0.5 + 83 / 240, 49 / 240], dtype=torch.float64)
    torch.testing.assert_close(state["v"], torch.stack([first, 1 - first], 1))


def test_fedamp_mixes_models_that_are_all_equal() -> None:
    # All distances are 0, and so is their median: each other client has exp(0) / 2 of the step.
    cloud = FedAMP().offer({}, 1, torch.ones(3, 2)).personal[:, 0]
    assert cloud.tolist() == [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]


def test_mdmgbs_centroids_by_known_labels() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 3.0], [6.0, 0.0]])
    predictions = Predictions(torch.zeros(4, 2), features)
    centroids = MDMGB(centroids="labels").answer(predictions, torch.tensor([0, 0, 1, 1]))["centroids"]
    # The last image is nearer to the other class, and stays in its own.
    assert centroids.tolist() == [[3, 0, 1], [3, 1.5, 1]]
    # By default the labels of a client that has some play no part.
    soft = MDMGB().answer(predictions, torch.tensor([0, 0, 1, 1]))["centroids"]
    assert torch.equal(soft, MDMGB().answer(predictions, None)["centroids"])
    assert not torch.equal(soft, centroids)


def test_mdmgbs_temperature_by_hand() -> None:
    # The first client's centroids are the target's, cosine 1; the second's are the other class's, cosine 0.
    answers = {"centroids": torch.stack([torch.eye(2), torch.eye(2).flip(0), torch.eye(2)])}
    unlabeled = torch.tensor([False, False, True])

    def weights(mdmgb: MDMGB) -> list[float]:
        return mdmgb.regather(answers, torch.zeros(1, 4), ~unlabeled, unlabeled).flatten().tolist()

    near = math.exp(2) / (1 + math.exp(2))
    assert weights(MDMGB(temperature=0.5)) == pytest.approx([0, near, 1 - near, 0])
    assert weights(MDMGB()) == pytest.approx([0, 2 / 3, 1 / 3, 0])
