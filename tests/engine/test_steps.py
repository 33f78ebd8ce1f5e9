"""Rounds counted in steps: pass after pass over a client's images, with short last batches, alike in both engines."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedwca.aggregators.fedavg import FedAvg
from fedwca.core.network import Network
from fedwca.core.training_settings import FinishTraining, Training
from fedwca.data.federation import ClientImages
from fedwca.engine.client_task import ORDER, Task, client_draws
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys, permutation
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine, mini_batches
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.models.convnet import ConvNet
from fedwca.models.mlp import Mlp
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.server_client_alignment import ServerClientAlignment
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.prototype import Prototype
from tests.engine.federations import Thin, some

SIZES = (9, 4, 1, 13, 2, 8)
"""Images of each client. With batches of 4: last batches of a single image, full ones, and a client of one image."""
TRAINING = Training(steps=7, lr=0.1, batch_size=4, momentum=0, weight_decay=0)
METHOD = Method("fedavg", "FedAvg", FedAvg(), Argmax(), (CrossEntropy(), Proximal(mu=0.1)))
MODELS = {
    "mlp": Mlp(side=8, width=6),
    "hidden": Mlp(side=8, width=6, head="hidden", bottleneck=5, dropout=0.2),
    "convnet": ConvNet(side=8, width=2, bottleneck=5, channels=1, mean=(0.2,), std=(0.3,)),
    "colours": ConvNet(side=8, width=2, bottleneck=5),
    "batch norm": Thin(bottleneck=8),
}


def clients(side: int, one_class: bool = False) -> list[ClientImages]:
    return [
        ClientImages(some(n, k, side), some(3, k, side), labels=torch.zeros(n).long() if one_class else labels(n))
        for k, n in enumerate(SIZES)
    ]


def labels(n: int) -> Tensor:
    return torch.arange(n) % 3


def network(name: str) -> Network:
    return MODELS[name].build(3, seed=1, trains_classifier=True).double()


def play(engine: Engine, training: Training = TRAINING, count: int = 2) -> Tensor:
    server = init_server(engine)
    domains = torch.zeros(len(engine.images), dtype=torch.int64)
    for number in range(count):
        server, _ = run_round(number, server, METHOD, engine, training, Keys(0), domains)
    return server.rows


@pytest.mark.parametrize("name", MODELS)
def test_both_engines_take_the_same_steps(name: str) -> None:
    side = MODELS[name].side
    loop, stacked = (kind(network(name), clients(side)) for kind in (SequentialEngine, StackedEngine))
    assert torch.allclose(play(loop), play(stacked), atol=1e-9, rtol=1e-9)
    assert torch.allclose(loop.bank, stacked.bank, atol=1e-9, rtol=1e-9)


def test_slices_and_clients_of_one_class_change_nothing() -> None:
    engines = [
        SequentialEngine(network("mlp"), clients(8, one_class=True)),
        StackedEngine(network("mlp"), clients(8, one_class=True), workers=2),
    ]
    first, second = map(play, engines)
    assert torch.allclose(first, second, atol=1e-9, rtol=1e-9)


def test_steps_are_those_of_plain_gradient_descent() -> None:
    model, client = network("mlp"), clients(8)[0]
    engine = SequentialEngine(model, [client])
    method = Method("fedavg", "FedAvg", FedAvg(), Argmax(), (CrossEntropy(),))
    server = init_server(engine)
    run_round(0, server, method, engine, TRAINING, Keys(0), torch.zeros(1, dtype=torch.int64))
    plain, keys = network("mlp"), client_draws(Keys(0), 0, 0, TRAINING)
    steps = 0
    for epoch in range(3):
        for batch in permutation(keys(f"{ORDER}{epoch}"), 9).split(4):
            if steps == 7:
                break
            loss = cross_entropy(plain(plain.prepare(client.train[batch]))[0], labels(9)[batch])
            with torch.no_grad():
                leaves = list(plain.parameters())
                for leaf, gradient in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
                    leaf -= 0.1 * gradient
            steps += 1
    assert torch.allclose(engine.bank[0], engine.layout.read(plain), atol=1e-12, rtol=0)


def test_only_clients_that_begin_a_pass_have_an_order_drawn_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 7 steps of 4 images, clients of 13 and 9 images have 2 and 3 passes, those of 8 four, smaller ones seven."""
    shapes = list[tuple[int, ...]]()
    order = mini_batches._order
    monkeypatch.setattr(
        mini_batches,
        "_order",
        lambda keys, places, padding: (shapes.append(tuple(padding.shape)), order(keys, places, padding))[1],
    )
    play(StackedEngine(network("mlp"), clients(8)), count=1)
    assert shapes == [(6, 16), (6, 16), (5, 12), (4, 8), *[(3, 4)] * 3]


@pytest.mark.parametrize(
    ("images", "least", "passes"),
    [(9, 1, [3, 3, 1]), (9, 2, [2, 2, 2, 1]), (8, 2, [2, 2, 2, 1]), (1, 1, [1] * 7), (1, 2, []), (40, 1, [7])],
)
def test_passes_of_a_round_of_seven_steps(images: int, least: int, passes: list[int]) -> None:
    task = Task(Argmax(), (), TRAINING, lambda purpose: 0)
    assert task.passes(images, least) == passes
    epochs = Task(Argmax(), (), Training(epochs=2, batch_size=4), lambda purpose: 0)
    assert epochs.passes(images, least) == [-(-images // 4)] * 2


def test_a_round_is_counted_in_one_unit() -> None:
    assert "steps" not in Training().model_dump()
    assert "epochs" not in TRAINING.model_dump()
    assert Training(**TRAINING.model_dump()) == TRAINING
    for fields in ({"epochs": 2}, {"epochs": 1, "rounds_per_epoch": 2}):
        with pytest.raises(ValidationError, match="leave one out"):
            Training(steps=3, **fields)
    with pytest.raises(ValidationError, match=r"whole epochs.*leave steps out"):
        FinishTraining(steps=3)


def test_labels_stay_over_counted_steps_in_both_engines() -> None:
    alignment = ServerClientAlignment()
    method = Method("m", "M", FedAvg(), Prototype(renew="epoch"), (CrossEntropy(), alignment))
    rows = []
    for kind in (SequentialEngine, StackedEngine):
        engine = kind(network("hidden"), clients(8))
        server, domains = init_server(engine), torch.zeros(len(SIZES), dtype=torch.int64)
        for number in range(2):
            server, _ = run_round(number, server, method, engine, TRAINING, Keys(0), domains)
        rows.append(server.rows)
    assert torch.allclose(*rows, atol=1e-9, rtol=1e-9)
