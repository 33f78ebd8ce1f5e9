"""What servers do beside averaging: both engines, hand-worked rounds, and what each rule is at its trivial values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.afl import AFL
from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.fedgma import FedGMA
from fedwca.core.interfaces import Aggregator
from fedwca.core.training_settings import Training
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.errors import FedwcaError
from fedwca.federated.method import Method
from fedwca.federated.round import Outcome, init_server, run_round
from fedwca.federated.server import Server, take_server_step
from fedwca.federated.upload_checks import report_problem
from fedwca.functional import project_simplex
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax
from tests.engine.test_adaptation import clients, network

ENGINES = {"loop": SequentialEngine, "stacked": StackedEngine}
TRAINING = Training(steps=3, lr=0.05, batch_size=8, momentum=0, weight_decay=0)
SIZES = (12, 14, 9, 17)
EQUAL = (12, 12, 12)
engines = pytest.mark.parametrize("name", ENGINES)


def method(aggregator: Aggregator, *objectives: Any) -> Method:
    return Method("own", "Own", aggregator, Argmax(), (CrossEntropy(), *objectives))


def make(name: str, sizes: tuple[int, ...] = SIZES) -> Engine:
    return ENGINES[name](network(None), clients(sizes))


def play(engine: Engine, composed: Method, count: int = 2, **options: Any) -> tuple[Server, list[Outcome]]:
    server, outcomes = init_server(engine), []
    domains = torch.zeros(len(engine.images), dtype=torch.int64)
    for number in range(count):
        server, outcome = run_round(number, server, composed, engine, TRAINING, Keys(1), domains, **options)
        outcomes.append(outcome)
    return server, outcomes


def same_on_both(composed: Method, **options: Any) -> None:
    (one, first), (other, second) = (play(make(name), composed, 3, **options) for name in ENGINES)
    torch.testing.assert_close(other.rows, one.rows, rtol=1e-9, atol=1e-9)
    assert one.state.keys() == other.state.keys()
    for key, value in one.state.items():
        torch.testing.assert_close(other.state[key], value, rtol=1e-9, atol=1e-9)
    for a, b in zip(first, second, strict=True):
        for key, value in a.report.items():
            torch.testing.assert_close(b.report[key], value, rtol=1e-9, atol=1e-9, equal_nan=True)


def mean_loss(engine: Engine, row: Tensor, client: int) -> float:
    """Cross-entropy of a model on a client's images, by torch alone."""
    made = network(None).eval()
    engine.layout.write(made, row)
    with torch.no_grad():
        logits = made(made.prepare(engine.images[client]))
    own = engine.labels[client]
    assert own is not None
    return float(torch.nn.functional.cross_entropy(logits[0] if isinstance(logits, tuple) else logits, own))


# AFL


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_afl_is_the_same_on_both_engines(participation: float) -> None:
    same_on_both(method(AFL(rate=0.5)), participation=participation)


@engines
def test_two_rounds_of_afl_by_hand(name: str) -> None:
    engine, composed = make(name), method(AFL(rate=0.5))
    start = init_server(engine).rows[0].clone()
    first, _ = play(engine, composed, 1)
    # The first mean is uniform, whatever the sizes; losses are of the model that was received.
    torch.testing.assert_close(first.rows[0], engine.bank.mean(0))
    losses = torch.tensor([mean_loss(engine, start, k) for k in range(4)], dtype=torch.float64)
    weights = project_simplex(torch.full((4,), 0.25, dtype=torch.float64) + 0.5 * losses)
    torch.testing.assert_close(first.state["mixture"], weights)
    second, outcomes = play(engine, composed, 2)
    torch.testing.assert_close(second.rows[0], weights @ engine.bank)
    received = torch.tensor([mean_loss(engine, first.rows[0], k) for k in range(4)], dtype=torch.float64)
    torch.testing.assert_close(outcomes[1].report["received_loss"][:, 0], received)
    torch.testing.assert_close(second.state["mixture"], project_simplex(weights + 0.5 * received))


@engines
def test_without_a_rate_and_at_equal_sizes_afl_is_fedavg(name: str) -> None:
    one, _ = play(make(name, EQUAL), method(AFL(rate=0)))
    other, _ = play(make(name, EQUAL), method(FedAvg()))
    torch.testing.assert_close(one.rows, other.rows, rtol=1e-12, atol=1e-12)


def test_who_is_absent_or_has_no_weight_changes_nothing() -> None:
    afl, labels, sizes = AFL(rate=1.0), torch.zeros(3, dtype=torch.int64), torch.ones(3)
    mixture = torch.tensor([0.0, 0.25, 0.75], dtype=torch.float64)
    state = {"labels": labels, "mixture": mixture}
    present = torch.tensor([True, True, False])
    assert afl.gather(state, labels, sizes, present, 1).tolist() == [[0, 0, 1, 0]]
    alone = torch.tensor([True, False, False])
    assert afl.gather(state, labels, sizes, alone, 1).tolist() == [[1, 0, 0, 0]]
    # Losses 0.2 and 0.4, and 0.3 for the absent one: 0.2, 0.65, 1.05 is 0.9 too much, which the first cannot give all.
    report = {"received_loss": torch.tensor([[0.2], [0.4], [torch.nan]], dtype=torch.float64)}
    found = afl.learn(state, labels, report, present)["mixture"]
    torch.testing.assert_close(found, torch.tensor([0, 0.3, 0.7], dtype=torch.float64))


def test_a_loss_that_is_no_number_is_refused() -> None:
    declared = AFL.reports["received_loss"]
    assert report_problem(torch.tensor([3.0]), declared, 0) == ""
    assert "not finite" in report_problem(torch.tensor([torch.nan]), declared, 0)
    assert "shape" in report_problem(torch.tensor([3.0, 1.0]), declared, 0)


def test_a_client_without_its_report_is_refused() -> None:
    class Silent(AFL):
        def blend(self, round: int, view: Any) -> Any:
            return Aggregator.blend(self, round, view)

    with pytest.raises(FedwcaError, match="reports no received_loss"):
        play(make("loop"), method(Silent()), 1)


# FedGMA


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_fedgma_is_the_same_on_both_engines(participation: float) -> None:
    same_on_both(method(FedGMA(threshold=0.6, server_lr=1.5)), participation=participation)


@engines
def test_without_a_threshold_and_at_rate_1_fedgma_is_fedavg(name: str) -> None:
    one, _ = play(make(name), method(FedGMA(threshold=0)))
    other, _ = play(make(name), method(FedAvg()))
    torch.testing.assert_close(one.rows, other.rows, rtol=1e-12, atol=1e-12)


def test_a_masked_mean_by_hand() -> None:
    x = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    models = torch.tensor([[0.0, 2.0, 2.0, 1.0], [0.5, 1.5, 0.0, 1.0], [7.0, 7.0, 7.0, 7.0]])
    weights = torch.tensor([[0.25, 0.75, 0.0]], dtype=torch.float64)
    mixed = weights.float() @ models
    # Votes 1, -1, 0.75 - 0.25 and 0; changes 0.625, -0.625, 0.5 and 0.
    moved = FedGMA(threshold=0.6, server_lr=2.0).server_step(x, mixed, weights, models)
    assert moved.tolist() == [[1 - 2 * 0.625, 1 + 2 * 0.625, 1 - 2 * 0.5 * 0.5, 1.0]]
    assert FedGMA(threshold=0.5, server_lr=2.0).server_step(x, mixed, weights, models)[0, 2] == 1 - 2 * 0.5


def test_statistics_are_the_clients_mean_whatever_the_server_does() -> None:
    mixed = torch.tensor([[2.0, 5.0]])
    gather = torch.tensor([[0.0, 1.0]])
    moved = take_server_step(FedGMA(server_lr=3.0), torch.tensor([[1.0, 1.0]]), mixed, gather, mixed, 1)
    assert moved.tolist() == [[4.0, 5.0]]


@pytest.mark.parametrize("fields", [{"threshold": 1.1}, {"threshold": -0.1}, {"server_lr": 0}, {"rate": 1}])
def test_fedgma_refuses_what_is_out_of_bounds(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        FedGMA(**fields)
