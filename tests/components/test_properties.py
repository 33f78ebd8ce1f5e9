"""What holds for every aggregator; files that are added to ``aggregators/`` are included by name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedwca.aggregators import aggregators
from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.wca import WCA
from fedwca.core.grouping import averaged_clients
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import State
from fedwca.federated.upload_checks import report_problem
from fedwca.functional import blend_weights, soft_cluster_weights

from .fakes import FakeView, built, labels_for, play

PARTITIONS = {
    "K=1": [0],
    "C=1": [0, 0, 0, 0],
    "C=K": [0, 1, 2, 3],
    "uneven": [1, 0, 1, 2, 1, 0],
    "backwards": [2, 2, 1, 0, 0, 1, 2],
}
partitions = pytest.mark.parametrize("given", [torch.tensor(p) for p in PARTITIONS.values()], ids=list(PARTITIONS))
every = pytest.mark.parametrize("aggregator", built(), ids=aggregators.names())
takes_partition = pytest.mark.parametrize(
    "aggregator", [a for a in built() if a.grouping.needs_clusterer], ids=lambda a: a.name
)


def is_mixture(weights: Tensor) -> bool:
    """Whether rows are float64, not negative, and sum to 1."""
    sums_to_one = torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64), atol=1e-12)
    return weights.dtype == torch.float64 and bool((weights >= -1e-15).all()) and sums_to_one


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-12)


@every
@partitions
def test_whatever_is_mixed_is_a_mixture(aggregator: Aggregator, given: Tensor) -> None:
    case = play(aggregator, given)
    clusters = int(case.labels.max()) + 1
    for gather in case.gathers:
        assert is_mixture(gather if aggregator.rows_are_models else gather[:1])
        assert gather.shape[0] >= clusters
    assert case.offer.personal.ndim == 3
    assert case.offer.personal.shape[0] == len(given)
    assert case.offer.models_per_client >= 1
    for weights in (case.offer.personal, case.offer.shared, case.blend.start, *case.blend.references.values()):
        assert is_mixture(weights)
    assert case.blend.start.shape == (len(given), case.offer.models_per_client)
    delivered = case.aggregator.deliver(case.states[-1], len(case.rows[-1]))
    assert delivered.shape == (len(given), len(case.rows[-1]))
    assert is_mixture(delivered)
    if not aggregator.grouping.keeps_models_apart and not aggregator.grouping.clients_choose:
        assert torch.equal(case.offer.personal[:, 0], aggregator.deliver(case.states[0], len(case.rows[0])))


@every
@partitions
def test_a_client_knows_only_itself(aggregator: Aggregator, given: Tensor) -> None:
    case = play(aggregator, given)
    for client in range(len(given)):
        alone = aggregator.blend(1, case.view.only(client))
        assert close(alone.start[0], case.blend.start[client])
        for name, value in alone.references.items():
            assert close(value[0], case.blend.references[name][client])
        for name, value in alone.report.items():
            assert close(value[0], case.blend.report[name][client])


@every
@partitions
def test_clients_have_no_order(aggregator: Aggregator, given: Tensor) -> None:
    order = torch.randperm(len(given), generator=torch.Generator().manual_seed(3))
    case, permuted = play(aggregator, given), play(aggregator, given, order=order)
    # If each client has a row of its own (these come last), the rows are permuted as the clients are.
    common = len(case.gathers[0]) - (len(given) if aggregator.count_rows(len(given), 0) else 0)
    rows = torch.cat([torch.arange(common), common + order[: len(case.gathers[0]) - common]])
    for before, after, count in zip(case.gathers, permuted.gathers, (1, len(case.rows[0])), strict=True):
        assert close(before[rows][:, count:][:, order], after[:, count:])
    assert close(case.rows[-1][rows], permuted.rows[-1])
    assert close(case.offer.personal[order][:, :, rows], permuted.offer.personal)
    assert close(case.blend.start[order], permuted.blend.start)
    delivered = aggregator.deliver(case.states[-1], len(case.rows[-1])) @ case.rows[-1]
    assert close(delivered[order], aggregator.deliver(permuted.states[-1], len(permuted.rows[-1])) @ permuted.rows[-1])


@every
@partitions
def test_reports_are_what_is_declared(aggregator: Aggregator, given: Tensor) -> None:
    case = play(aggregator, given)
    assert set(case.blend.report) == set(aggregator.reports)
    for name, value in case.blend.report.items():
        assert len(value) == len(given)
        assert [report_problem(row, aggregator.reports[name], len(case.offer.shared)) for row in value] == [""] * len(
            given
        )


@every
@partitions
def test_a_state_is_plain_tensors(aggregator: Aggregator, given: Tensor) -> None:
    case = play(aggregator, given)
    saved = {name: torch.tensor(value.tolist(), dtype=value.dtype) for name, value in case.states[-1].items()}
    assert all(type(value) is Tensor and not value.requires_grad for value in case.states[-1].values())
    restored = aggregator.offer({k: v.view(case.states[-1][k].shape) for k, v in saved.items()}, 2, case.rows[-1])
    expected = aggregator.offer(case.states[-1], 2, case.rows[-1])
    assert torch.equal(restored.personal, expected.personal)
    assert torch.equal(restored.shared, expected.shared)


@every
def test_a_cluster_without_a_client_keeps_its_model(aggregator: Aggregator) -> None:
    labels = labels_for(aggregator, torch.tensor([0, 1, 1, 2]))
    clusters = int(labels.max()) + 1
    sizes = torch.tensor([3, 5, 7, 9])
    everybody = torch.ones(4, dtype=torch.bool)
    rows = len(aggregator.gather({}, labels, sizes, everybody, 1))
    state = aggregator.next_state({}, labels, {}, everybody)
    present = torch.tensor([False, True, True, False])
    gather = aggregator.gather(state, labels, sizes, present, rows)
    assert is_mixture(gather if aggregator.rows_are_models else gather[:1])
    assert gather.shape == (rows, rows + 4)
    assert gather[:, rows:][:, ~present].abs().sum() == 0
    for cluster in range(clusters):
        if not bool((present & (labels == cluster)).any()):
            assert gather[cluster].argmax() == cluster
            assert gather[cluster].max() == 1
    nobody = aggregator.gather(state, labels, sizes, torch.zeros(4, dtype=torch.bool), rows)
    assert torch.equal(nobody[:, :rows], torch.eye(rows, dtype=torch.float64))
    source = aggregator.gather({}, labels, sizes, present, 1)
    assert is_mixture(source if aggregator.rows_are_models else source[:1])


@takes_partition
def test_one_cluster_is_fedavg(aggregator: Aggregator) -> None:
    labels = torch.zeros(5, dtype=torch.int64)
    uniform = aggregator.model_copy(update={"weighting": "uniform"})
    case, average = play(uniform, labels), play(FedAvg(weighting="uniform"), labels)
    starts = torch.einsum("ks,ksp->kp", case.blend.start, case.view.received)
    assert close(starts, average.rows[0].expand(5, -1))
    for state, rows, average_rows in zip(case.states, case.rows, average.rows, strict=True):
        assert close(uniform.deliver(state, len(rows)) @ rows, average_rows.expand(5, -1))


def test_samples_weigh_where_asked() -> None:
    labels, sizes = torch.tensor([0, 0, 1]), torch.tensor([1, 3, 5])
    everybody = torch.ones(3, dtype=torch.bool)
    means = FedAvg().gather({}, torch.zeros(3, dtype=torch.int64), sizes, everybody, 1)
    assert close(means[:, 1:], torch.tensor([[1, 3, 5]], dtype=torch.float64) / 9)
    uniform = aggregators.build("one_hot").gather({}, labels, sizes, everybody, 2)
    assert close(uniform[:, 2:], torch.tensor([[0.5, 0.5, 0], [0, 0, 1]], dtype=torch.float64))


@partitions
@pytest.mark.parametrize("direction", ["column", "row"])
def test_wca_starts_from_equation_8(given: Tensor, direction: str) -> None:
    case = play(WCA(ta=0.4, tb=0.7, direction=direction), given)
    alpha, beta = case.blend.report["alpha"], case.blend.report["beta"]
    clusters = int(given.max()) + 1
    membership = torch.nn.functional.one_hot(given, clusters)
    mixtures = torch.cat([case.offer.personal, case.offer.shared.expand(len(given), -1, -1)], 1)
    in_rows = torch.einsum("ks,ksr->kr", case.blend.start, mixtures)
    # In round 1 no client has reported yet, so soft models are the cluster models.
    assert close(in_rows, blend_weights(membership, alpha, beta, torch.eye(clusters, dtype=torch.float64)))
    assert close(case.states[-1]["soft"], soft_cluster_weights(alpha, beta, given, direction))  # type: ignore[arg-type]
    offer = case.aggregator.offer(case.states[-1], 2, case.rows[-1])
    mixtures = torch.cat([offer.personal, offer.shared.expand(len(given), -1, -1)], 1)
    view = type(case.view)(case.view.tables, mixtures @ case.rows[-1], 1)
    later = case.aggregator.blend(2, view)
    expected = blend_weights(membership, later.report["alpha"], later.report["beta"], case.states[-1]["soft"])
    assert close(torch.einsum("ks,ksr->kr", later.start, mixtures), expected)


def test_wca_asks_each_client_its_own_question() -> None:
    case = play(WCA(ta=0.4, tb=0.7), torch.tensor([0, 1, 1, 2]))
    alpha, beta = case.blend.report["alpha"], case.blend.report["beta"]
    scores = case.view.alignment(case.view.shared) / 0.4
    assert close(alpha, scores.softmax(1))
    mixed = torch.cat([torch.zeros(4, 1, dtype=torch.float64), alpha], 1)
    densities = torch.stack([case.view.density(case.view.own), case.view.density(mixed)], 1) / 0.7
    assert close(beta, densities.softmax(1))


def test_wca_temperatures_at_their_ends() -> None:
    clusters = torch.tensor([0, 1, 1, 2, 2])
    hot = play(WCA(ta=1e12, tb=1e12), clusters)
    assert torch.allclose(hot.blend.report["alpha"], torch.tensor(1 / 3, dtype=torch.float64))
    assert torch.allclose(hot.blend.report["beta"], torch.tensor(1 / 2, dtype=torch.float64))
    cold = play(WCA(ta=1e-9), clusters)
    best = cold.view.alignment(cold.view.shared).argmax(1)
    assert torch.equal(cold.blend.report["alpha"], torch.nn.functional.one_hot(best, 3).double())
    # With a hard alpha the mixed model may equal the own model, a tie for beta; so alpha stays soft here.
    decided = play(WCA(ta=0.4, tb=1e-9), clusters).blend.report["beta"]
    assert torch.equal(decided.sort(1).values, torch.tensor([[0.0, 1.0]]).double().expand(5, -1))


def test_wca_directions_differ_where_gains_are_one_sided() -> None:
    # Both clusters prefer model 0, so only "row" gives cluster 1 no weight on its own model.
    labels, present = torch.tensor([0, 1]), torch.ones(2, dtype=torch.bool)
    report = {
        "alpha": torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64),
        "beta": torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64),
    }
    column = WCA(direction="column").next_state({}, labels, report, present)["soft"]
    row = WCA(direction="row").next_state({}, labels, report, present)["soft"]
    assert column.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert row.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def ladd_rounds(start: int, weighting: str = "samples", untrusted: int = 0) -> list[Tensor]:
    """Server rows over rounds 0 to 4, of one number each; clients upload ``round``, ``round + 4`` and ``round + 10``.

    Untrusted clients join the second cluster; they come in every round and are in no mean.
    """
    ladd = aggregators.build(f"ladd:start={start},weighting={weighting}")
    labels, sizes = torch.tensor([0, 0, 1] + untrusted * [1]), torch.tensor([1, 3, 5] + untrusted * [7])
    trusted = torch.arange(3 + untrusted) < 3
    state: State = {}
    rows, seen = torch.zeros(1, 1, dtype=torch.float64), []
    for number in range(5):
        # The second cluster is absent in round 3; its numbers then must not count.
        present = torch.tensor([True, True, number != 3] + untrusted * [True])
        uploads = torch.tensor([number, number + 4, number + 10] + untrusted * [99], dtype=torch.float64)[:, None]
        counted = averaged_clients(labels, present, trusted)
        rows = ladd.gather(state, labels, sizes, counted, len(rows)) @ torch.cat([rows, uploads])
        state = dict(ladd.next_state(state, labels, {}, counted))
        seen.append(rows[:, 0])
    return seen


def test_ladds_teachers_by_hand() -> None:
    models = torch.stack(ladd_rounds(2))
    # Cluster 0: (r + 3(r + 4))/4 = r + 3. Cluster 1: r + 10, but 12 stays in round 3.
    assert models[:, 0].tolist() == [3, 4, 5, 6, 7]
    assert models[:, 1].tolist() == [10, 11, 12, 12, 14]
    # Teachers are the models before round 2, then their mean from round 2 on; an absent cluster adds nothing.
    assert models[:, 2].tolist() == [3, 4, 5, 5.5, 6]
    assert models[:, 3].tolist() == [10, 11, 12, 12, 13]
    assert torch.stack(ladd_rounds(2, "uniform"))[:, 0].tolist() == [2, 3, 4, 5, 6]
    # A round in which only untrusted clients of a cluster take part does not count for its teacher.
    assert torch.equal(torch.stack(ladd_rounds(2, untrusted=2)), models)
    # Without averaging the teacher is the model.
    assert torch.equal(*torch.stack(ladd_rounds(0)).split(2, 1))


def test_ladd_sends_a_teacher_only_where_it_is_another_model() -> None:
    clusters, rows = torch.tensor([0, 1, 1, 2]), torch.eye(6, dtype=torch.float64)
    ladd, without = aggregators.build("ladd:start=1"), aggregators.build("ladd:start=0")
    numbers: list[list[int]] = []
    state: State = {}
    for number in range(5):
        state = ladd.next_state(state, clusters, {}, torch.ones(4, dtype=torch.bool))
        numbers.append([aggregator.offer(state, number + 1, rows).models_per_client for aggregator in (ladd, without)])
    assert numbers == [[1, 1], [1, 1], [2, 1], [2, 1], [2, 1]]
    # A client that comes after the last round is asked as in round 1, and gets the teachers of the last round.
    assert ladd.offer(state, 1, rows).models_per_client == 2
    sent = ladd.offer(state, 3, rows).personal @ rows
    assert sent.argmax(2).tolist() == [[0, 3], [1, 4], [1, 4], [2, 5]]
    blend = ladd.blend(3, FakeView(torch.zeros(4, 1), sent, 2))
    assert blend.references["teacher"].tolist() == [[0, 1]] * 4
    assert blend.start.tolist() == [[1, 0]] * 4
    assert ladd.blend(2, FakeView(torch.zeros(4, 1), sent[:, :1], 1)).references["teacher"].tolist() == [[1]] * 4
    # Without averaging the teacher is the own model.
    assert without.blend(3, FakeView(torch.zeros(4, 1), sent[:, :1], 1)).references == {}


@every
def test_references_are_declared(aggregator: Aggregator) -> None:
    case = play(aggregator, torch.tensor([0, 0, 1, 1]))
    assert {"start", "cluster", "source"} <= set(aggregator.references)
    assert set(case.blend.references) <= set(aggregator.references)
