"""Training through an adaptation step, and adaptation at test time: gradients, both engines, and early stopping."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedwca.adaptations.entropy import Entropy
from fedwca.adaptations.learned import Learned
from fedwca.aggregators.fedavg import FedAvg
from fedwca.core.adaptation import Adaptation, ExtraNetworks
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.client_task import adaptation_lr
from fedwca.engine.interface import Engine
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys, fold_key
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.stacked import StackedEngine
from fedwca.engine.test_time_adaptation import AdaptedModel, adapt_models
from fedwca.federated.client_tasks import client_task
from fedwca.federated.extra_networks import add_extras, remove_extras
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.functional import inner_step, least_entropy, prediction_entropy
from fedwca.objectives.adapted import AdaptedCrossEntropy
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.two_model import TwoModel
from fedwca.runs.records.measure_delivered import step_size
from tests.engine.federations import Thin, ThinCnn3, some

SIZES = (12, 14, 9, 17)
DOMAINS = torch.arange(len(SIZES))
ENGINES = {"loop": SequentialEngine, "stacked": StackedEngine}
TRAINING = Training(epochs=2, lr=0.02, batch_size=8)
FEDTTA = Learned(lr=0.3, rate=0.02, width=6)
engines = pytest.mark.parametrize("name", ENGINES)


def labels(n: int) -> Tensor:
    return torch.arange(n) % 3


def clients(sizes: tuple[int, ...] = SIZES, tests: tuple[int, ...] | None = None, known: bool = True) -> Any:
    tests = tests or sizes
    counts = zip(sizes, tests, strict=True)
    return [
        ClientImages(some(n, k), some(m, k), labels=labels(n) if known else None) for k, (n, m) in enumerate(counts)
    ]


def network(adaptation: Adaptation | None = FEDTTA, whole: bool = True, **fields: Any) -> Network:
    base = Thin(bottleneck=8, **fields).build(3, seed=1, trains_classifier=whole).double()
    if adaptation is None:
        return base
    return add_extras(base, lambda: adaptation.networks(3, 8), lambda name: fold_key([1, "weights", name]) >> 1)


def method(adaptation: Adaptation | None, *objectives: Any, labeler: Any = None) -> Method:
    return Method("own", "Own", FedAvg(), labeler or Argmax(), objectives, adaptation=adaptation)


def play(engine: Engine, composed: Method, training: Training = TRAINING, count: int = 2) -> Tensor:
    server = init_server(engine)
    for number in range(count):
        server, _ = run_round(number, server, composed, engine, training, Keys(1), DOMAINS[: len(engine.images)])
    return server.rows


# Training through a step


def loss_after_a_step(
    model: Network, layout: Layout, images: Tensor, eta: float, row: Tensor, decay: float = 0.0
) -> Tensor:
    """L of eqs. 3-7 at a row, in plain torch: no running statistics, no dropout; the step has weight decay."""
    x, parameters = model.prepare(images), {slot.name: slot.of(row) for slot in layout.parameters}
    base = {name: value for name, value in parameters.items() if not name.startswith("extras.")}
    adaptation_parameters = {
        n.removeprefix("extras.adaptation."): v for n, v in parameters.items() if n.startswith("extras.")
    }

    def forward(p: dict[str, Tensor]) -> Tensor:
        backbone = {n.removeprefix("backbone."): v for n, v in p.items() if n.startswith("backbone.")}
        z = functional_call(model.backbone, backbone, (x, ()))
        z = F.linear(z, p["bottleneck.weight"], p["bottleneck.bias"])
        z = F.batch_norm(z, None, None, p["norm.weight"], p["norm.bias"], training=True)
        direction = p.get("classifier.parametrizations.weight.original1")
        if direction is None:
            return F.linear(z, p["classifier.weight"], p["classifier.bias"])
        weight = direction * p["classifier.parametrizations.weight.original0"] / direction.norm(dim=1, keepdim=True)
        return F.linear(z, weight, p["classifier.bias"])

    def inner(logits: Tensor) -> Tensor:
        return functional_call(model.extras["adaptation"], adaptation_parameters, (logits,)).square().sum().sqrt()

    moved, _ = inner_step(forward, inner, base, eta)
    moved = {key: value - eta * decay * base[key] for key, value in moved.items()}
    return F.cross_entropy(forward(moved), labels(len(images)))


@engines
@pytest.mark.parametrize(("classifier", "decay"), [("linear", 0.0), ("linear", 0.5), ("wn", 0.0)])
def test_the_gradient_through_a_step_is_that_of_finite_differences(name: str, classifier: str, decay: float) -> None:
    model = network(dropout=0, channel_dropout=0, classifier=classifier)
    (client,) = clients((8,))
    engine = ENGINES[name](model, [client])
    layout, start_row = engine.layout, engine.layout.read(model)
    training = Training(epochs=1, lr=1, batch_size=8, momentum=0, weight_decay=0)
    adaptation = FEDTTA.model_copy(update={"rate": 1.0, "weight_decay": decay})
    play(engine, method(adaptation, AdaptedCrossEntropy()), training, 1)
    gradient = (start_row - engine.bank[0])[: layout.trained]
    value = lambda row: loss_after_a_step(model, layout, client.train, 0.3, row, decay)  # noqa: E731
    draws = torch.Generator().manual_seed(0)
    for part in layout.parts.values():
        direction = torch.zeros_like(start_row)
        direction[part] = torch.randn(part.stop - part.start, generator=draws, dtype=torch.float64)
        direction /= direction.norm()
        step = 1e-5 * direction
        slope = (value(start_row + step) - value(start_row - step)) / 2e-5
        assert float(gradient @ direction[: layout.trained]) == pytest.approx(float(slope), rel=2e-4, abs=1e-9)
    # The gradient without an adaptation step (a learning rate near 0) is another one.
    without_a_step = torch.autograd.functional.jacobian(
        lambda row: loss_after_a_step(model, layout, client.train, 1e-12, row), start_row
    )
    assert float((without_a_step[layout.base] - gradient[layout.base]).norm() / gradient[layout.base].norm()) > 0.01
    assert list(layout.parts) == ["backbone", "bottleneck", "classifier", "adaptation"]


CASES = {
    "fedtta": (FEDTTA, (AdaptedCrossEntropy(),), Argmax(), True, {}),
    "prox, clipped": (
        FEDTTA.model_copy(update={"clip": 0.01, "weight_decay": 0.2}),
        (AdaptedCrossEntropy(mu=0.5, reverse=True),),
        Argmax(),
        True,
        {"clip": 0.05, "momentum": 0.0, "cosine": 4, "decay": 0.5, "decay_rounds": 2, "extra_momentum": 0.9},
    ),
    "by batches": (Learned(width=6, reduction="rms", batch=3), (AdaptedCrossEntropy(),), Argmax(), True, {}),
    "entropy, no labels, mixed images": (Entropy(lr=0.2), (AdaptedCrossEntropy(), Shot()), TwoModel(), False, {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("classifier", ["linear", "wn"])
def test_engines_agree_in_training(case: str, classifier: str) -> None:
    adaptation, objectives, labeler, known, changes = CASES[case]
    rows = []
    for name in ENGINES:
        model = network(adaptation, whole=known, classifier=classifier)
        engine = ENGINES[name](model, clients(known=known))
        composed = method(adaptation, *objectives, labeler=labeler)
        rows.append(play(engine, composed, TRAINING.model_copy(update=changes)))
        assert not torch.equal(rows[-1][0], engine.layout.read(model))
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-9, atol=1e-9)


def test_engines_agree_with_batch_norm_in_the_backbone() -> None:
    rows = []
    for name in ENGINES:
        model = ThinCnn3(bottleneck=12).build(3, seed=1, trains_classifier=True).double()
        model = add_extras(model, lambda: FEDTTA.networks(3, 12), lambda name: 5)
        engine = ENGINES[name](model, clients((8, 8)))
        training = Training(epochs=1, lr=0.01, batch_size=8)
        rows.append(play(engine, method(FEDTTA, AdaptedCrossEntropy()), training, 1))
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-9, atol=1e-9)


class Flat(Adaptation):
    """A loss that is always 0: its step changes nothing."""

    def loss(self, logits: Tensor, networks: ExtraNetworks) -> Tensor:
        return 0 * logits.sum()


@engines
def test_without_a_step_it_is_fedavg(name: str) -> None:
    rows = [
        play(ENGINES[name](network(None), clients()), composed)
        for composed in (method(Flat(), AdaptedCrossEntropy()), method(None, CrossEntropy()))
    ]
    torch.testing.assert_close(*rows, rtol=0, atol=1e-12)


@engines
def test_running_statistics_are_those_of_one_pass(name: str) -> None:
    """With a learning rate near 0 a round keeps the parameters, and running statistics see each batch once."""
    training = Training(epochs=1, lr=1e-300, batch_size=8)
    model = network()
    engines = [ENGINES[name](model, clients()) for _ in range(2)]
    adapted = play(engines[0], method(FEDTTA.model_copy(update={"rate": 1e-300}), AdaptedCrossEntropy()), training, 1)
    plain = play(engines[1], method(None, CrossEntropy()), training, 1)
    torch.testing.assert_close(adapted, plain, rtol=0, atol=1e-12)
    assert not torch.equal(
        adapted[0, engines[0].layout.trained :], engines[0].layout.read(model)[engines[0].layout.trained :]
    )


@engines
def test_a_dead_network_gives_no_gradient_and_no_nan(name: str) -> None:
    model = network()
    for parameter in model.extras.parameters():
        nn.init.zeros_(parameter)
    engine = ENGINES[name](model, clients())
    rows = play(engine, method(FEDTTA, AdaptedCrossEntropy()))
    assert bool(rows.isfinite().all())
    assert not bool(rows[0, engine.layout.extras["adaptation"]].any())
    plain = play(ENGINES[name](network(None), clients()), method(None, CrossEntropy()))
    torch.testing.assert_close(rows[0, engine.layout.base], plain[0, engine.layout.base], rtol=0, atol=1e-12)


@engines
def test_extra_networks_may_have_a_momentum_of_their_own(name: str) -> None:
    rows_by_momentum, model = [], network()
    for momentum in (None, 0.0, 0.9):
        training = Training(steps=1, lr=0.5, batch_size=20, momentum=0, weight_decay=0, extra_momentum=momentum)
        twice = training.model_copy(update={"steps": 2})
        rows = []
        for settings in (training, twice):
            engine = ENGINES[name](model, clients((12,)))
            play(engine, method(FEDTTA, AdaptedCrossEntropy()), settings, 1)
            rows.append(engine.bank[0].clone())
        rows_by_momentum.append(rows)
        columns = engine.layout.extras["adaptation"]
    assert torch.equal(rows_by_momentum[0][1], rows_by_momentum[1][1])
    assert torch.equal(rows_by_momentum[0][0], rows_by_momentum[2][0])  # the first step has no momentum yet
    assert not torch.equal(rows_by_momentum[0][1][columns], rows_by_momentum[2][1][columns])
    assert torch.equal(rows_by_momentum[0][1][engine.layout.base], rows_by_momentum[2][1][engine.layout.base])


@engines
def test_in_bfloat16_too_training_through_a_step_is_in_float32(name: str) -> None:
    rows = []
    for precision in ("fp32", "bf16"):
        engine = ENGINES[name](network().float(), clients(), "cpu", 1, precision=precision)
        rows.append(play(engine, method(FEDTTA, AdaptedCrossEntropy(mu=0.1)), count=1))
    assert torch.equal(*rows)


@engines
def test_parts_are_clipped_and_moved_apart(name: str) -> None:
    model, training = network(), Training(epochs=1, lr=0.5, batch_size=20, momentum=0, weight_decay=0, clip=1e-3)
    engine = ENGINES[name](model, clients((12,)))
    start_row = engine.layout.read(model)
    play(engine, method(FEDTTA, AdaptedCrossEntropy()), training, 1)
    moved = start_row - engine.bank[0]
    lengths = {
        part: float(moved[columns].norm())
        for part, columns in (("base", engine.layout.base), *engine.layout.extras.items())
    }
    assert lengths == pytest.approx({"base": 0.5 * 1e-3, "adaptation": 0.02 * 1e-3}, rel=1e-2)


def test_networks_beside_it_leave_the_weights_of_the_base() -> None:
    model = Thin(bottleneck=8).build(3, seed=1, trains_classifier=True)
    base_weights = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    grown = add_extras(model, lambda: Learned().networks(3, 8), lambda name: 7)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(grown.state_dict()[name], value) for name, value in base_weights.items())
    assert [tuple(p.shape) for p in grown.extras["adaptation"].parameters()] == [
        *((32, 3), (32,), (32, 32), (32,), (32, 32), (32,)),
        *((1, 32), (1,)),
    ]
    same_seed = add_extras(model, lambda: Learned().networks(3, 8), lambda name: 7)
    assert torch.equal(Layout.of(grown).read(grown), Layout.of(same_seed).read(same_seed))
    other_seed = add_extras(model, lambda: Learned().networks(3, 8), lambda name: 8)
    assert not torch.equal(Layout.of(grown).read(grown), Layout.of(other_seed).read(other_seed))
    layout = Layout.of(grown)
    assert (layout.base.stop, layout.classifier.stop) == (Layout.of(model).trained, Layout.of(model).trained)
    assert [len(layer) for layer in layout.layers()] == [2, 2, 2]
    assert add_extras(model, lambda: {}, lambda name: 7) is model
    assert remove_extras(grown).state_dict().keys() == base_weights.keys()


def test_no_graph_outlives_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    original_step = Replica.step

    def watch(replica: Replica, *arguments: Any) -> None:
        original_step(replica, *arguments)
        counts.append(sum(type(x) is Tensor and x.grad_fn is not None for x in gc.get_objects(generation=0)))

    monkeypatch.setattr(Replica, "step", watch)
    engine = SequentialEngine(network(), clients((12,)), workers=1)
    training = Training(epochs=4, lr=0.01, batch_size=4)
    gc.collect()
    gc.disable()  # so what a step makes stays in the youngest generation, the only one that is looked through
    try:
        play(engine, method(FEDTTA, AdaptedCrossEntropy(mu=0.1)), training, 1)
    finally:
        gc.enable()
    assert len(counts) == 12
    assert len(set(counts[1:])) == 1


# Steps at test time


class Outputs:
    """Clients whose models are the logits of their one image; entropies are taken from a script, if there is one."""

    base = slice(0, 2)

    def __init__(self, sizes: tuple[int, ...], told: list[Tensor] | None = None) -> None:
        self.sizes, self.told = sizes, iter(told or [])
        self.scripted = told is not None

    def logits(self, models: Tensor) -> Tensor:
        return models[:, None, :].clone()

    def each(self, function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
        return next(self.told) if self.scripted else torch.stack([function(client_logits) for client_logits in logits])

    def losses(self, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
        return torch.stack([adaptation.loss(client_logits, {}) for client_logits in logits])

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        return slopes[:, 0]


def test_a_step_on_entropy_by_hand() -> None:
    """p = (3/4, 1/4): H = 0.5623; dH/dz = -p (log p + H) = (-0.2060, 0.2060)."""
    model = torch.tensor([[math.log(3), 0.0]], dtype=torch.float64)
    (result,) = adapt_models(Outputs((1,)), model, Entropy(), 1.0)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    slope = 0.75 * (math.log(0.75) + entropy)
    assert result.model.tolist() == pytest.approx([math.log(3) + slope, -slope], abs=1e-12)
    assert (result.taken, result.steps) == (1, 1)
    assert result.entropies[0] == pytest.approx(entropy)
    assert result.entropies[1] == pytest.approx(float(prediction_entropy(result.model[None])))
    assert result.entropies[1] < entropy
    assert model.tolist() == [[math.log(3), 0.0]]
    (clipped,) = adapt_models(Outputs((1,)), model, Entropy(clip=0.01), 1.0)
    assert float((clipped.model - model[0]).norm()) == pytest.approx(0.01, rel=1e-4)
    # Weight decay, 0.1 of the model, is applied after clipping.
    (decayed,) = adapt_models(Outputs((1,)), model, Entropy(clip=0.01, weight_decay=0.1), 1.0)
    torch.testing.assert_close(decayed.model, clipped.model - 0.1 * model[0], rtol=0, atol=1e-12)


NAN = math.nan
SCRIPTS = [
    [3.0, 2.0, 2.5, 2.0, 1.0, 1.0],
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    [1.0, NAN, NAN, NAN, NAN, 0.0],
    [5.0, 4.0, 4.0, 3.0, 3.0, 3.0],
]


@pytest.mark.parametrize("patience", [1, 2, 5])
@pytest.mark.parametrize("candidates", ["adapted", "all", "unadapted"])
def test_the_model_of_least_entropy_is_taken_as_the_equation_reads(patience: int, candidates: Any) -> None:
    script = torch.tensor(SCRIPTS, dtype=torch.float64)
    adaptation = Entropy(steps=5, patience=patience, candidates=candidates)
    models = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    adapted_models = adapt_models(Outputs((1,) * 4, list(script.T)), models, adaptation, 0.1)
    # The released code multiplies the first entropy by 0, so no later one is lower.
    candidate_entropies = {
        "adapted": script[:, 1:],
        "all": script,
        "unadapted": script.index_fill(1, torch.tensor(0), 0.0),
    }
    chosen, entries_read = least_entropy(candidate_entropies[candidates], patience)
    offset = int(candidates == "adapted")
    assert [result.taken for result in adapted_models] == (chosen + offset).tolist()
    assert [result.steps for result in adapted_models] == (entries_read - 1 + offset).tolist()
    # The model that is taken is the one after that number of steps.
    for k, result in enumerate(adapted_models):
        if result.taken:
            exact = adapt_models(Outputs((1,)), models[[k]], Entropy(steps=result.taken), 0.1)[0]
            torch.testing.assert_close(result.model, exact.model)
        else:
            assert torch.equal(result.model, models[k])
        assert torch.equal(result.logits[0], result.model)


@pytest.mark.parametrize("candidates", ["all", "unadapted"])
def test_candidates_need_patience(candidates: Any) -> None:
    with pytest.raises(ValueError, match="set patience too"):
        Entropy(candidates=candidates)


def adapted(name: str, adaptation: Adaptation, **engine_options: Any) -> tuple[Engine, list[AdaptedModel]]:
    engine = ENGINES[name](network(), clients(tests=(5, 0, 40, 1)), **engine_options)
    engine.bank += 0.01 * torch.randn(
        engine.bank.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    bank = engine.bank.clone()
    adapted_models = engine.adapt(adaptation, 0.5)
    assert torch.equal(engine.bank, bank)
    return engine, adapted_models


TEST_TIME = {
    "tent": Entropy(lr=0.1, steps=2, clip=1.0, weight_decay=0.1),
    "fedtta": Learned(width=6),
    "fedtta, by batches": Learned(width=6, reduction="rms", batch=16),
    "++": Learned(width=6, steps=8, patience=2),
    "++ from the model as sent": Entropy(steps=6, patience=1, candidates="all"),
    "++ as released": Entropy(steps=6, patience=2, candidates="unadapted"),
}


@pytest.mark.parametrize("case", TEST_TIME)
def test_engines_agree_at_test_time(case: str) -> None:
    (_, loop), (engine, stacked), (_, slices) = (
        adapted("loop", TEST_TIME[case], workers=1),
        adapted("stacked", TEST_TIME[case]),
        adapted("stacked", TEST_TIME[case], workers=1),
    )
    for stacked_models in (stacked, slices):
        for expected, actual in zip(loop, stacked_models, strict=True):
            torch.testing.assert_close(expected.model, actual.model, rtol=0, atol=1e-9)
            torch.testing.assert_close(expected.logits, actual.logits, rtol=0, atol=1e-9)
            assert expected.entropies == pytest.approx(actual.entropies, abs=1e-9)
            assert expected.taken == actual.taken
    assert [len(result.logits) for result in loop] == [5, 0, 40, 1]
    no_images = loop[1]
    assert (no_images.taken, no_images.entropies, no_images.classify().classes.tolist()) == (0, (), [])
    base, layout = engine.layout.base, engine.layout
    for k, result in enumerate(loop):
        assert torch.equal(result.model[base.stop :], engine.bank[k, base.stop :])
        assert torch.equal(result.model[base], engine.bank[k, base]) == (result.taken == 0)
        assert layout.width == len(result.model)
    if case == "++":
        assert len({result.steps for result in loop}) > 2
    # A client adapted alone, from a mixture of rows, gives the same model as among all clients.
    alone = engine.adapt(TEST_TIME[case], 0.5, torch.eye(4, dtype=torch.float64), engine.bank.clone(), [2])
    torch.testing.assert_close(alone[0].model, loop[2].model, rtol=0, atol=1e-9)


def test_the_gradient_over_chunks_is_that_of_all_images_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    unchunked = adapted("loop", TEST_TIME["fedtta"])[1][2]
    monkeypatch.setattr(Network, "eval_batch_size", property(lambda network: 7))
    torch.testing.assert_close(adapted("loop", TEST_TIME["fedtta"])[1][2].model, unchunked.model, rtol=0, atol=1e-12)
    torch.testing.assert_close(adapted("stacked", TEST_TIME["fedtta"])[1][2].model, unchunked.model, rtol=0, atol=1e-9)


def test_a_step_is_that_of_autograd_on_all_images() -> None:
    model, images = network(), some(20, 2)
    engine = SequentialEngine(model, [ClientImages(images, images)])
    (result,) = engine.adapt(FEDTTA, 0.5)
    exact, layout = copy.deepcopy(model).eval(), engine.layout
    for parameter in exact.parameters():
        parameter.requires_grad_(True)
    exact.extras["adaptation"](exact(exact.prepare(images))[0]).norm().backward()
    for slot in layout.parameters:
        parameter = exact.get_parameter(slot.name)
        if not slot.name.startswith("extras."):
            assert parameter.grad is not None
            torch.testing.assert_close(slot.of(result.model), parameter.data - 0.5 * parameter.grad)


def test_labels_of_test_images_are_nowhere_in_reach() -> None:
    """Engines get no labels of test images, and labels of training images do not change an adaptation."""
    fields = set(ClientImages.__dataclass_fields__)
    assert fields == {"train", "test", "labels"}
    client = clients((12,))[0]
    relabelled = replace(client, labels=labels(12).flip(0))
    models = [SequentialEngine(network(), [images]).adapt(FEDTTA, 0.5)[0].model for images in (client, relabelled)]
    assert torch.equal(*models)


def test_learning_rates_follow_the_schedule_but_steps_of_adaptations_no_cosine() -> None:
    learned = Learned(lr=0.3, rate=0.02)
    composed = method(learned, AdaptedCrossEntropy(), labeler=Argmax())
    training = Training(lr=0.1, cosine=2, decay=0.25, decay_rounds=2)
    task = client_task(composed, training, 1, Keys(0), 0, {})
    assert task.training.lr == pytest.approx(0.1 / 2 / 2)  # by half a cosine, and by decay
    assert task.learning_rates == {"adaptation": pytest.approx(0.02 / 2 / 2)}
    assert task.inner_lr == pytest.approx(0.3 / 2)
    ended = client_task(composed, training, 2, Keys(0), 0, {})
    assert (ended.training.lr, ended.inner_lr) == (pytest.approx(0), pytest.approx(0.3 / 4))
    assert step_size(composed, training, 2) == pytest.approx(0.3 / 4)
    assert adaptation_lr(Learned(), training, 1) == pytest.approx(0.1 / 2)  # the training's rate


def test_entropy_in_bits_has_the_gradient_of_nats_over_log_2() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    nats, bits = Entropy().loss(logits, {}).item(), Entropy(unit="bits").loss(logits, {}).item()
    assert bits == pytest.approx(nats / math.log(2))
