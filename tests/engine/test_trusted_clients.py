"""Clients without trust do not train, in either engine: which models they keep, and which ones are averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.one_hot import OneHot
from fedwca.aggregators.wca import WCA
from fedwca.clusterers.ada_bn import AdaBN
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.interfaces import Aggregator, Clusterer
from fedwca.core.messages import Predictions, Signatures, State, Targets
from fedwca.engine.input_moments import count_moments, measure_moments
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.engine.stacked.trials_together import StackedTrials
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.method import Method
from fedwca.federated.open_round import open_round
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import spread_trained_mean
from fedwca.federated.trusted_clients import measure_trust
from fedwca.functional import mutual_information
from fedwca.models.lenet import LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.pseudo_labelers.trusted import Trusted
from tests.engine.federations import DOMAINS, TRAINING, clients, compare, lenet, rounds


def trust() -> Tensor:
    """The trust of each client ``[K]``: mutual information of the source model's predictions."""
    network = lenet().eval()
    with torch.no_grad():
        return torch.stack([mutual_information(network(network.prepare(client.train))[0]) for client in clients()])


MIDDLE = float(trust().sort().values[1:3].mean())
"""A threshold that two of the four clients reach."""


class Paired(Clusterer):
    """Two clusters: the most and the least trusted client, and the two others."""

    def __call__(self, signatures: Signatures) -> Tensor:
        order = trust().argsort()
        return torch.ones(4, dtype=torch.int64).index_fill(0, order[[0, 3]], 0)


def gated(**fields: object) -> Method:
    """FedTAB with a threshold that the most trusted client alone reaches."""
    method = compose(RunConfig(baselines=("fedtab",)))[0][0]
    least = float(trust().sort().values[2:].mean())
    return replace(method, pseudo_labeler=Trusted(least=least, **fields), clusterer=Paired())  # type: ignore[arg-type]


def engine() -> SequentialEngine:
    return SequentialEngine(lenet(), clients(), "cpu", 1)


@pytest.mark.parametrize(
    "fields",
    [{}, {"untrusted": "plain"}, {"untrusted": MIDDLE}, {"renew": "epoch", "labels": "predicted"}],
    ids=lambda given: str(given),
)
def test_both_engines_do_the_same(fields: dict[str, object]) -> None:
    compare(engine(), StackedEngine(lenet(), clients(), workers=3), gated(**fields))


def test_only_trusted_clients_train() -> None:
    loop, method = engine(), gated()
    layout, source = loop.layout, loop.layout.read(loop.network)
    server, (first, second) = rounds(loop, method)
    best, worst = int(trust().argmax()), int(trust().argmin())
    middle = [k for k in range(4) if k not in (best, worst)]
    assert first.trusted is not None
    assert first.trusted.nonzero().flatten().tolist() == [best]
    assert torch.equal(server.state["trusted"], first.trusted)
    for client, upload in first.uploads.items():
        assert float(upload.notes["trust"]) == pytest.approx(float(trust()[client]), abs=1e-12)
        assert bool((upload.targets.weights == (1 if client == best else 0)).all())
        assert "trust" not in second.uploads[client].notes
    # A client that does not train keeps the parameters it was sent; its statistics are those of its images.
    for client in middle:
        assert torch.equal(loop.bank[client, : layout.trained], source[: layout.trained])
        network = lenet().train()
        network.norm.momentum = 1.0
        with torch.no_grad():
            network(network.prepare(clients()[client].train))
        statistics = torch.cat([network.norm.running_mean, network.norm.running_var])
        torch.testing.assert_close(loop.bank[client, layout.trained :], statistics)
    assert not torch.equal(loop.bank[best, : layout.trained], source[: layout.trained])
    # A cluster is averaged over its trusted clients alone; without any, nobody trains and statistics are averaged.
    labels = second.labels
    torch.testing.assert_close(server.rows[labels[best]], loop.bank[best])
    torch.testing.assert_close(server.rows[labels[middle[0]]], loop.bank[middle].mean(0))
    torch.testing.assert_close(loop.bank[worst, : layout.trained], rows_before(method)[labels[worst], : layout.trained])


def test_between_the_thresholds_a_client_trains_on_plain_images() -> None:
    loop, method = engine(), gated(untrusted=MIDDLE)
    layout, source = loop.layout, loop.layout.read(loop.network)
    server, (outcome,) = rounds(loop, method, 1)
    stopped, untrained, between, best = trust().argsort().tolist()
    assert [float(outcome.uploads[k].targets.weights.unique()) for k in (stopped, untrained, between, best)] == [
        0,
        0,
        0.5,
        1,
    ]
    assert torch.equal(loop.bank[untrained, : layout.trained], source[: layout.trained])
    # The model of the cluster without the best client is the one that was trained in it.
    torch.testing.assert_close(server.rows[outcome.labels[between]], loop.bank[between])
    torch.testing.assert_close(server.rows[outcome.labels[best]], loop.bank[best])


class Whole(Trusted):
    """Trusts every client by half, and gives its weights of 1 in another dtype."""

    dtype: str = "float32"

    def trust(self, source: Predictions) -> Tensor:
        return torch.tensor(0.5)

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        targets = super().__call__(predictions, draws)
        return replace(targets, weights=targets.weights.to(getattr(torch, self.dtype)))


@pytest.mark.parametrize("kind", [SequentialEngine, StackedEngine])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_half_trust_halves_weights_of_any_dtype(dtype: str, kind: type[SequentialEngine | StackedEngine]) -> None:
    method = replace(gated(), pseudo_labeler=Whole(dtype=dtype))
    _, (outcome,) = rounds(kind(lenet(), clients()), method, 1)
    assert all(bool((upload.targets.weights == 0.5).all()) for upload in outcome.uploads.values())


class Halves(Clusterer):
    """Two clusters: the two most trusted clients, and the two others."""

    def __call__(self, signatures: Signatures) -> Tensor:
        return torch.ones(4, dtype=torch.int64).index_fill(0, trust().argsort()[2:], 0)


def halves(**fields: object) -> Method:
    """FedTAB where the two most trusted clients reach the threshold and form a cluster."""
    return replace(gated(), pseudo_labeler=Trusted(least=MIDDLE, **fields), clusterer=Halves())  # type: ignore[arg-type]


def test_who_does_not_train_takes_what_others_trained_with_its_own_statistics() -> None:
    loop, method = engine(), halves(untrained="mean")
    layout = loop.layout
    server, (outcome,) = rounds(loop, method, 1)
    *stopped, second, best = trust().argsort().tolist()
    mean = loop.bank[[second, best]].mean(0)
    row, trained = server.rows[outcome.labels[stopped[0]]], layout.trained
    torch.testing.assert_close(server.rows[outcome.labels[best]], mean)
    torch.testing.assert_close(row[:trained], mean[:trained])
    # The statistics are those that the source model has on the cluster's images.
    plain_server, (plain_outcome,) = rounds(engine(), halves(), 1)
    torch.testing.assert_close(row[trained:], plain_server.rows[plain_outcome.labels[stopped[0]], trained:])
    compare(engine(), StackedEngine(lenet(), clients(), workers=3), method)


def test_records_are_of_the_models_that_clients_trained() -> None:
    plain, spread = engine(), engine()
    rounds(plain, halves(), 1)
    rounds(spread, halves(untrained="mean"), 1)
    assert torch.equal(plain.bank, spread.bank)


def test_the_mean_that_is_given_is_of_the_most_trusted() -> None:
    models = torch.tensor([[1.0], [10.0], [100.0], [3.0]])
    trusted, labels = torch.tensor([1.0, 0.5, 0.0, 1.0]), torch.tensor([0, 0, 1, 0])
    arguments = (labels, torch.ones(4), torch.ones(4, dtype=torch.bool), trusted, 1)
    give_back = spread_trained_mean(halves(untrained="mean"), models, *arguments)
    assert models.flatten().tolist() == [1, 10, 2, 3]
    give_back()
    assert models.flatten().tolist() == [1, 10, 100, 3]


def test_the_mean_that_is_given_weighs_as_the_aggregator_does_and_is_of_those_present() -> None:
    models = torch.tensor([[1.0], [10.0], [100.0], [3.0], [50.0]])
    trusted, labels = torch.tensor([1.0, 0.5, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 0, 0])
    arguments = (labels, torch.tensor([1, 1, 1, 3, 1]), torch.tensor([True] * 4 + [False]), trusted, 1)
    method = replace(halves(untrained="mean"), aggregator=OneHot(weighting="samples"))
    spread_trained_mean(method, models, *arguments)
    assert models.flatten().tolist() == [1, 10, (1 * 1 + 3 * 3) / 4, 3, 50]


@pytest.mark.parametrize(("aggregator", "heard"), [(OneHot, 1), (WCA, 4)])
def test_reports_are_of_all_clients_and_models_of_those_that_train(aggregator: type[Aggregator], heard: int) -> None:
    seen: list[int] = []

    class Listening(aggregator):  # type: ignore[misc, valid-type]
        name = "listening"

        def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
            seen.append(int(present.sum()))
            learned: State = super().next_state(state, labels, report, present)
            return learned

    class Together(Clusterer):
        def __call__(self, signatures: Signatures) -> Tensor:
            return torch.zeros(4, dtype=torch.int64)

    rounds(engine(), replace(gated(), aggregator=Listening(), clusterer=Together()), 2)
    assert seen == [heard] * 2


def test_trust_is_measured_in_float64() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    (trusted,) = measure_trust([Predictions(logits, logits)])
    assert torch.equal(trusted, mutual_information(logits.double()))


def test_one_clients_model_is_given_to_nobody_alone() -> None:
    rows = [rounds(engine(), gated(untrained=untrained), 2)[0].rows for untrained in ("source", "mean")]
    assert torch.equal(*rows)


@pytest.mark.parametrize(
    ("answer", "said"), [(1.5, "gave 1.5"), (math.nan, "gave nan"), ([1, 0], ".*of shape"), (None, "gave nothing")]
)
def test_trust_that_is_no_share_is_refused(answer: Any, said: str) -> None:
    class Sure(Trusted):
        def trust(self, source: Predictions) -> Tensor:
            return None if answer is None else torch.tensor(answer)  # type: ignore[return-value]

    method = replace(gated(), pseudo_labeler=Sure())
    with pytest.raises(FedwcaError, match=rf": trust {said}.*; right is one number from 0 to 1"):
        rounds(engine(), method, 1)


def rows_before(method: Method) -> Tensor:
    """The server's rows after round 0."""
    return rounds(engine(), method, 1)[0].rows


def test_a_cluster_whose_trusted_client_is_absent_keeps_its_model() -> None:
    loop, method, best = engine(), gated(), int(trust().argmax())
    server, _ = rounds(loop, method, 1)
    last_rows = server.rows.clone()
    for number in range(1, 6):
        server, outcome = run_round(number, server, method, loop, TRAINING, Keys(0), DOMAINS, participation=0.5)
        if best not in outcome.uploads:
            break
        last_rows = server.rows.clone()
    assert best not in outcome.uploads
    cluster = int(outcome.labels[best])
    assert torch.equal(server.rows[cluster], last_rows[cluster])


def test_rounds_go_on_from_what_a_checkpoint_holds() -> None:
    method, uninterrupted = gated(), engine()
    server, _ = rounds(uninterrupted, method, 3)
    loop = engine()
    resumed_server, _ = rounds(loop, method, 1)
    resumed, bank = engine(), loop.bank.clone()
    init_server(resumed)
    resumed.bank.copy_(bank)
    state = {name: value.clone() for name, value in resumed_server.state.items()}
    resumed_server = replace(resumed_server, rows=resumed_server.rows.clone(), state=state)
    for number in (1, 2):
        resumed_server, _ = run_round(number, resumed_server, method, resumed, TRAINING, Keys(0), DOMAINS)
    assert torch.equal(resumed_server.rows, server.rows)
    assert torch.equal(resumed.bank, uninterrupted.bank)


def test_trials_that_go_together_do_the_same() -> None:
    method = gated()
    together = StackedTrials([lenet(), lenet()], [clients(), clients()])
    servers = [init_server(trial) for trial in together.engines]
    opened_rounds = {
        i: open_round(0, servers[i], method, trial, TRAINING, Keys(0), DOMAINS)
        for i, trial in enumerate(together.engines)
    }
    together.run(opened_rounds)
    loop = engine()
    rounds(loop, method, 1)
    for trial in together.engines:
        assert float((trial.bank - loop.bank).abs().max()) < 1e-9


@pytest.mark.parametrize("layers", ["bottleneck", "all"])
def test_moments_by_hand(layers: str) -> None:
    network = ResNet18.model_validate({"weights": "none", "side": 32, "bottleneck": 8}).build(3, seed=1).double()
    images, norm = clients(32)[0].train, network.norm
    norm.running_mean += 2  # as if it had been trained on other images
    norm.running_var *= 4
    moments = measure_moments(network, images, layers)  # type: ignore[arg-type]
    assert len(moments) == count_moments(network, layers)  # type: ignore[arg-type]
    with torch.no_grad():
        z = network.bottleneck(network.backbone(network.prepare(images), []))
    variances = z.var(0, correction=0) + 1e-5
    expected = torch.cat([(z.mean(0) - 2) / math.sqrt(4 + 1e-5), (variances / (4 + 1e-5)).log() / 2])
    torch.testing.assert_close(moments[-16:], expected, rtol=1e-4, atol=1e-5)


def test_clusters_by_moments_see_colours_before_training() -> None:
    loop = engine()
    method = replace(compose(RunConfig(baselines=("source_ada_bn",)))[0][0], clusterer=AdaBN())
    server, (outcome,) = rounds(loop, method, 1)
    assert outcome.labels.tolist() == [0, 0, 1, 1]
    assert outcome.signature == 32
    assert torch.equal(
        server.rows[:, : loop.layout.trained], loop.layout.read(loop.network)[: loop.layout.trained].expand(2, -1)
    )
    assert not any(name.startswith("collected.") for name in server.state)


def test_moments_are_of_all_images_whatever_fits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network, images = lenet(), clients()[0].train
    expected = measure_moments(network, images)
    monkeypatch.setattr(type(network), "eval_batch_size", 7)
    torch.testing.assert_close(measure_moments(network, images), expected)


def test_a_head_without_batch_norm_has_no_moments() -> None:
    network = LeNet(head="direct").build(3, seed=0)
    with pytest.raises(UsageError, match="head direct has no BatchNorm"):
        count_moments(network, "bottleneck")
