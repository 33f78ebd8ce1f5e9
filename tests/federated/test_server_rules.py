"""What servers do beside averaging: equal on both engines, rounds worked by hand, and each rule at trivial settings."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.afl import AFL
from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.fedgma import FedGMA
from fedwca.aggregators.fedper import FedPer
from fedwca.aggregators.scaffold import Scaffold
from fedwca.config.resolve_config import resolve_plan
from fedwca.core.interfaces import Aggregator
from fedwca.core.training_settings import Training
from fedwca.engine.client_task import Task
from fedwca.engine.interface import Engine
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.errors import Diverged, FedwcaError, UsageError
from fedwca.federated.close_round import Outcome, measure_reach
from fedwca.federated.method import Method
from fedwca.federated.open_round import open_round
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server, take_server_step
from fedwca.federated.upload_checks import report_problem
from fedwca.functional import control_update, project_simplex
from fedwca.models.mlp import Mlp
from fedwca.objectives.control import Control
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax
from tests.engine.federations import SIDE
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


def play(
    engine: Engine, composed: Method, count: int = 2, training: Training = TRAINING, **options: Any
) -> tuple[Server, list[Outcome]]:
    server, outcomes = init_server(engine), []
    domains = torch.zeros(len(engine.images), dtype=torch.int64)
    for number in range(count):
        server, outcome = run_round(number, server, composed, engine, training, Keys(1), domains, **options)
        outcomes.append(outcome)
    return server, outcomes


def same_on_both(composed: Method, **options: Any) -> None:
    (server, outcomes), (other_server, other_outcomes) = (play(make(name), composed, 3, **options) for name in ENGINES)
    torch.testing.assert_close(other_server.rows, server.rows, rtol=1e-9, atol=1e-9)
    assert server.state.keys() == other_server.state.keys()
    for key, value in server.state.items():
        torch.testing.assert_close(other_server.state[key], value, rtol=1e-9, atol=1e-9)
    for a, b in zip(outcomes, other_outcomes, strict=True):
        for key, value in a.report.items():
            torch.testing.assert_close(b.report[key], value, rtol=1e-9, atol=1e-9, equal_nan=True)


def mean_loss(engine: Engine, row: Tensor, client: int) -> float:
    """Cross-entropy of a model on a client's images, by torch alone."""
    model = network(None).eval()
    engine.layout.write(model, row)
    with torch.no_grad():
        logits = model(model.prepare(engine.images[client]))
    labels = engine.labels[client]
    assert labels is not None
    return float(torch.nn.functional.cross_entropy(logits[0] if isinstance(logits, tuple) else logits, labels))


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
    afl, _ = play(make(name, EQUAL), method(AFL(rate=0)))
    fedavg, _ = play(make(name, EQUAL), method(FedAvg()))
    torch.testing.assert_close(afl.rows, fedavg.rows, rtol=1e-12, atol=1e-12)


def test_who_is_absent_or_has_no_weight_changes_nothing() -> None:
    afl, labels, sizes = AFL(rate=1.0), torch.zeros(3, dtype=torch.int64), torch.ones(3)
    mixture = torch.tensor([0.0, 0.25, 0.75], dtype=torch.float64)
    state = {"labels": labels, "mixture": mixture}
    present = torch.tensor([True, True, False])
    assert afl.gather(state, labels, sizes, present, 1).tolist() == [[0, 0, 1, 0]]
    alone = torch.tensor([True, False, False])
    assert afl.gather(state, labels, sizes, alone, 1).tolist() == [[1, 0, 0, 0]]
    # Losses 0.2 and 0.4, and 0.3 for the absent one: 0.2, 0.65, 1.05 sum to 1.9; the projection sets the first to 0.
    report = {"received_loss": torch.tensor([[0.2], [0.4], [torch.nan]], dtype=torch.float64)}
    learned = afl.next_state(state, labels, report, present)["mixture"]
    torch.testing.assert_close(learned, torch.tensor([0, 0.3, 0.7], dtype=torch.float64))


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
    fedgma, _ = play(make(name), method(FedGMA(threshold=0)))
    fedavg, _ = play(make(name), method(FedAvg()))
    torch.testing.assert_close(fedgma.rows, fedavg.rows, rtol=1e-12, atol=1e-12)


def test_a_masked_mean_by_hand() -> None:
    x = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    models = torch.tensor([[0.0, 2.0, 2.0, 1.0], [0.5, 1.5, 0.0, 1.0], [7.0, 7.0, 7.0, 7.0]])
    weights = torch.tensor([[0.25, 0.75, 0.0]], dtype=torch.float64)
    mixed = weights.float() @ models
    # Votes 1, -1, 0.75 - 0.25 and 0; changes 0.625, -0.625, 0.5 and 0.
    moved = FedGMA(threshold=0.6, server_lr=2.0).server_step(x, mixed, weights, models)
    assert moved.tolist() == [[1 - 2 * 0.625, 1 + 2 * 0.625, 1 - 2 * 0.5 * 0.5, 1.0]]
    assert FedGMA(threshold=0.5, server_lr=2.0).server_step(x, mixed, weights, models)[0, 2] == 1 - 2 * 0.5


@pytest.mark.parametrize(("clients", "threshold"), [(20, 0.1), (25, 0.2), (40, 0.6), (50, 0.8)])
def test_agreement_of_exactly_the_threshold_is_enough_in_any_order(clients: int, threshold: float) -> None:
    ones = round(clients * (1 + threshold) / 2)
    signs = torch.cat([torch.ones(ones), -torch.ones(clients - ones)])
    orders = torch.stack([torch.randperm(clients, generator=torch.Generator().manual_seed(k)) for k in range(50)])
    models, x = signs[orders].T, torch.zeros(1, 50)
    weights = torch.full((1, clients), 1 / clients, dtype=torch.float64)
    moved = FedGMA(threshold=threshold).server_step(x, torch.ones(1, 50), weights, models)
    assert moved.tolist() == [[1.0] * 50]


def test_statistics_are_the_clients_mean_whatever_the_server_does() -> None:
    mixed = torch.tensor([[2.0, 5.0]])
    gather = torch.tensor([[0.0, 1.0]])
    moved = take_server_step(FedGMA(server_lr=3.0), torch.tensor([[1.0, 1.0]]), mixed, gather, mixed, 1)
    assert moved.tolist() == [[4.0, 5.0]]


@pytest.mark.parametrize("fields", [{"threshold": 1.1}, {"threshold": -0.1}, {"server_lr": 0}, {"rate": 1}])
def test_fedgma_refuses_what_is_out_of_bounds(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        FedGMA(**fields)


# SCAFFOLD


def scaffold(**fields: Any) -> Method:
    return method(Scaffold(**fields), Control())


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_scaffold_is_the_same_on_both_engines(participation: float) -> None:
    same_on_both(scaffold(), participation=participation)


@pytest.mark.parametrize(
    ("composed", "training", "message"),
    [
        (scaffold(), TRAINING.model_copy(update={"momentum": 0.9}), "momentum 0.9 changes"),
        (scaffold(), TRAINING.model_copy(update={"clip": 1.0}), "clip = 1 cuts"),
        (method(Scaffold()), TRAINING, "control and own_control, which no objective reads"),
    ],
)
def test_a_round_from_python_refuses_training_that_scaffold_cannot_have(
    composed: Method, training: Training, message: str
) -> None:
    engine = make("loop")
    with pytest.raises(UsageError, match=message):
        run_round(0, init_server(engine), composed, engine, training, Keys(1), torch.zeros(4, dtype=torch.int64))


def test_a_round_whose_server_model_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedGMA, "server_step", lambda self, rows, mixed, weights, models: mixed + torch.inf)
    with pytest.raises(Diverged, match=r"the server's model has values that are not finite; a lower --lr may help"):
        play(make("loop"), method(FedGMA()), 1)


@engines
def test_the_first_round_of_scaffold_at_rate_1_is_fedavgs(name: str) -> None:
    first, _ = play(make(name), scaffold(server_lr=1), 1)
    fedavg, _ = play(make(name), method(FedAvg(weighting="uniform")), 1)
    torch.testing.assert_close(first.rows[:1], fedavg.rows, rtol=1e-12, atol=1e-12)
    assert not torch.equal(*(play(make(name), composed, 2)[0].rows[0] for composed in (scaffold(), method(FedAvg()))))


@engines
def test_two_rounds_of_scaffold_by_hand(name: str) -> None:
    engine = make(name)
    trained = engine.layout.trained
    x = init_server(engine).rows[0, :trained].clone()
    c = torch.zeros_like(x)
    controls = c.expand(4, -1)
    for count in (1, 2):
        server, outcomes = play(engine, scaffold(), count)
        y, present = engine.bank[:, :trained], outcomes[-1].present
        assert bool(present.all())
        renewed = control_update(c, controls, x, y, TRAINING.steps, TRAINING.lr)
        x = x + 1.5 * (y - x).mean(0)
        c, controls = c + (renewed - controls).mean(0), renewed
        torch.testing.assert_close(server.rows[:, :trained], torch.cat([x[None], c[None], controls]))
    # One more round with half of the clients: the others keep their controls, whatever their models are.
    server, outcomes = play(engine, scaffold(), 3, participation=0.5)
    absent, before = ~outcomes[-1].present, play(make(name), scaffold(), 2, participation=0.5)[0]
    assert 0 < int(absent.sum()) < 4
    assert torch.equal(server.rows[2:][absent], before.rows[2:][absent])
    assert not any(torch.equal(*pair) for pair in zip(server.rows[2:][~absent], before.rows[2:][~absent], strict=True))
    changed = server.rows[2:] - before.rows[2:]
    torch.testing.assert_close(server.rows[1, :trained], (before.rows[1] + changed.sum(0) / 4)[:trained])


@engines
def test_a_step_goes_along_the_gradient_and_the_difference_of_controls(name: str) -> None:
    plain, training = (
        Mlp(width=8, side=SIDE).build(3, seed=1, trains_classifier=True).double(),
        TRAINING.model_copy(update={"steps": 1, "batch_size": 32}),
    )
    engine = ENGINES[name](copy.deepcopy(plain), clients(SIZES))
    first, _ = play(engine, scaffold(), 1)
    second, outcome = run_round(1, first, scaffold(), engine, training, Keys(1), torch.zeros(4, dtype=torch.int64))
    width = engine.layout.trained
    assert torch.equal(outcome.offer.personal[2], torch.eye(6, dtype=torch.float64)[[0, 1, 4]])
    for client in range(4):
        model, labels = copy.deepcopy(plain).train(), engine.labels[client]
        assert labels is not None
        engine.layout.write(model, first.rows[0])
        loss = torch.nn.functional.cross_entropy(model(model.prepare(engine.images[client]))[0], labels)
        slopes = torch.autograd.grad(loss, [model.get_parameter(slot.name) for slot in engine.layout.parameters])
        gradient = torch.cat([slope.reshape(-1) for slope in slopes])
        moved = 0.05 * (gradient + (first.rows[1] - first.rows[2 + client])[:width])
        torch.testing.assert_close(engine.bank[client, :width], first.rows[0, :width] - moved)
        torch.testing.assert_close(second.rows[2 + client, :width], gradient)


def test_the_reach_of_clients_is_by_the_rounds_learning_rate() -> None:
    engine, composed = make("loop"), method(FedAvg())
    server, _ = play(engine, composed, 1)
    falling = TRAINING.model_copy(update={"decay": 0.25, "decay_rounds": 2})
    opened = open_round(1, server, composed, engine, falling, Keys(1), torch.zeros(4, dtype=torch.int64))
    # After one of two rounds the rate is a half: three steps of 0.025.
    assert measure_reach(opened).tolist() == pytest.approx([0.075] * 4)


def test_steps_are_counted_as_they_are_taken() -> None:
    def count_steps(training: Training, least: int, images: int) -> int:
        return Task(Argmax(), (), training, lambda purpose: 0).count_steps(images, least)

    assert count_steps(Training(steps=20, batch_size=8), 2, 12) == 20
    assert count_steps(Training(steps=20, batch_size=8), 2, 1) == 0
    assert count_steps(Training(epochs=3, batch_size=8), 2, 17) == 6  # with BatchNorm, one image is no step
    assert count_steps(Training(epochs=3, batch_size=8), 1, 17) == 9
    assert count_steps(Training(epochs=1, rounds_per_epoch=2, batch_size=8), 1, 17) == 2


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"training": {"momentum": 0.9}}, "which momentum 0.9 changes; take --set training.momentum=0"),
        (
            {"baselines": [], "aggregator": "scaffold", "name": "own"},
            "control and own_control, which no objective reads",
        ),
        ({"adaptation": "learned"}, "a network beside the model has 0.01 where the model has 0.3; take the same"),
        ({"training": {"clip": 0.1}}, "which clip = 0.1 cuts; leave training.clip out"),
        (
            {"baselines": ["scaffold/objective=reference_distribution+control"]},
            "a network beside the model has 0.007 where the model has 0.1; take the same",
        ),
        (
            {
                "baselines": ["scaffold/objective=simple_representation+control"],
                "training": {"extra_momentum": 0.9},
            },
            "which extra_momentum changes; take --set training.extra_momentum=0",
        ),
        ({"objectives": ["cross_entropy", "control"]}, "which aggregator 'fedavg' does not give"),
    ],
    ids=str,
)
def test_what_spoils_inferred_gradients_is_refused(layer: dict[str, Any], sentence: str) -> None:
    settings: dict[str, Any] = {"baselines": ["scaffold"], **layer}
    if "adaptation" in layer:
        rate = {"adaptation": {"learned": {"rate": 0.01}}}
        settings |= {
            "aggregator": "scaffold",
            "objectives": ["adapted", "control"],
            "components": rate,
            "baselines": [],
        }
    with pytest.raises(UsageError) as caught:
        resolve_plan({"name": "own", **settings}, preset_name="upfl")
    assert sentence in str(caught.value)


# FedPer


@pytest.mark.parametrize(("participation", "layers"), [(1.0, 1), (0.5, 2)])
def test_fedper_is_the_same_on_both_engines(participation: float, layers: int) -> None:
    same_on_both(method(FedPer(layers=layers)), participation=participation)


@engines
def test_two_rounds_of_fedper_by_hand(name: str) -> None:
    engine, share = make(name), torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    head = engine.layout.classifier
    assert head.stop - head.start == 8 * 3 + 3
    for count in (1, 2):
        server, outcomes = play(engine, method(FedPer()), count)
        expected = (share @ engine.bank).repeat(4, 1)
        expected[:, head] = engine.bank[:, head]
        torch.testing.assert_close(server.rows, expected)
        assert len(server.rows[:, head].unique(dim=0)) == 4
    assert torch.equal(outcomes[1].weights, torch.eye(4, dtype=torch.float64))


@engines
def test_who_is_absent_keeps_its_last_layer_and_gets_the_others(name: str) -> None:
    engine = make(name)
    head = engine.layout.classifier
    before, _ = play(engine, method(FedPer()), 1)
    after, outcomes = play(engine, method(FedPer()), 2, participation=0.5)
    absent = ~outcomes[-1].present
    assert 0 < int(absent.sum()) < 4
    assert torch.equal(after.rows[absent][:, head], before.rows[absent][:, head])
    assert len(after.rows[:, : head.start].unique(dim=0)) == 1
    assert not torch.equal(after.rows[0, : head.start], before.rows[0, : head.start])


def test_own_layers_keep_the_statistics_of_their_own_outputs() -> None:
    engine = make("loop")
    server, _ = play(engine, method(FedPer(layers=2)), 1)
    norm = [slice(s.start, s.stop) for s in engine.layout.statistics if s.name.startswith("norm.")]
    assert all(torch.equal(server.rows[:, columns], engine.bank[:, columns]) for columns in norm)
    averaged = [slice(s.start, s.stop) for s in engine.layout.statistics if not s.name.startswith("norm.")]
    assert all(len(server.rows[:, columns].unique(dim=0)) == 1 for columns in averaged), "of layers that are averaged"


class KeepsLayers(FedAvg):
    """Layers that stay with clients, without a row for each."""

    name = "keeps_layers"
    local_layers = 1


def test_layers_that_stay_need_a_row_for_each_client() -> None:
    engine, composed = make("loop"), method(KeepsLayers())
    said = r"aggregator 'keeps_layers': gather gave weights of 1 rows; right with local_layers are 4, one for each"
    with pytest.raises(FedwcaError, match=said):
        play(engine, composed, 1)


def test_last_layers_are_those_of_a_network_that_predicts() -> None:
    layout = make("loop").layout
    names = lambda columns: [s.name for s in layout.parameters if columns.start <= s.start < columns.stop]  # noqa: E731
    assert names(layout.last_layers(1)) == ["classifier.weight", "classifier.bias"]
    assert names(layout.last_layers(2))[:4] == ["bottleneck.weight", "bottleneck.bias", "norm.weight", "norm.bias"]
    assert layout.statistics_of(layout.last_layers(1)) == []
    norm_statistics = layout.statistics_of(layout.last_layers(2))
    assert norm_statistics == [slice(s.start, s.stop) for s in layout.statistics if s.name.startswith("norm.")] != []
    plain = Layout.of(Mlp(width=8).build(3, seed=1, trains_classifier=True))
    assert plain.last_layers(2).start == 784 * 8 + 8
    assert plain.last_layers(9) == slice(0, plain.trained)


def test_the_mean_of_all_last_layers_says_the_mean_of_all_outputs() -> None:
    engine = make("loop")
    server, _ = play(engine, method(FedPer()), 1)
    (weights,) = FedPer(new="mean").deliver_new(4, torch.zeros(1))
    model, images = network(None).eval(), engine.images[0]

    def outputs(row: Tensor) -> Tensor:
        engine.layout.write(model, row)
        with torch.no_grad():
            return model(model.prepare(images))[0]

    together = torch.stack([outputs(row) for row in server.rows]).mean(0)
    torch.testing.assert_close(outputs(weights @ server.rows), together)
    drawn = FedPer().deliver_new(4, torch.tensor([0.0, 0.26, 0.99]))
    assert drawn.argmax(1).tolist() == [0, 1, 3]
    assert FedAvg().deliver_new(1, torch.tensor([0.5, 0.9])).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("layer", [{"source": "photo"}, {"target": "photo"}], ids=str)
def test_layers_stay_with_clients_that_train_them(layer: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="they all need labels, as with --partition shards"):
        resolve_plan({"aggregator": "fedper", "name": "own", "baselines": [], **layer})
