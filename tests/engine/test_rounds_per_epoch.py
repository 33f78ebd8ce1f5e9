"""Epochs cut into several rounds: each round trains on one part of a client's images, in the order of the epoch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.config.resolve_config import resolve_plan
from fedwca.core.training_settings import FinishTraining, Training
from fedwca.engine.client_task import Task
from fedwca.engine.randomness import Keys, permutation
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.engine.stacked import StackedEngine
from fedwca.engine.stacked import train as stacked
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.pseudo_labelers.two_model import TwoModel
from tests.engine.federations import DOMAINS, clients, lenet

SIZES = (9, 14, 8, 23)
KEYS = Keys(3)
CUT = Training(epochs=1, lr=0.02, batch_size=4, rounds_per_epoch=3)


def play(engine: Any, method: Method, training: Training, count: int) -> Tensor:
    server = init_server(engine)
    for number in range(count):
        server, _ = run_round(number, server, method, engine, training, KEYS, DOMAINS[: len(engine.images)])
    return server.rows


def test_parts_are_even_and_larger_clients_have_no_smaller_one() -> None:
    for part in range(CUT.rounds_per_epoch):
        task = Task(Argmax(), [Shot()], CUT, lambda purpose: 0, part=part)
        sizes = [len(range(40)[task.cut(images)]) for images in range(40)]
        assert sizes == sorted(sizes)
        assert all(abs(size - images / 3) < 1 for images, size in enumerate(sizes))
    ranges = [range(23)[Task(Argmax(), [], CUT, lambda purpose: 0, part=part).cut(23)] for part in range(3)]
    assert [index for part in ranges for index in part] == list(range(23))


@pytest.mark.parametrize("name", ["loop", "stacked"])
def test_rounds_of_an_epoch_go_once_through_all_images(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[int, list[Tensor]] = {size: [] for size in SIZES}
    step, train_step = ClientWorker._step, stacked.train_step

    def watch(worker: ClientWorker, batch: Tensor, *arguments: Any) -> None:
        shown[len(worker.images)].append(batch)
        step(worker, batch, *arguments)

    def watch_all(batch: Any, context: Any, models: Any, momentum: Any, group: Any, *arguments: Any) -> None:
        for client, client_batch in zip(range(group.first, group.stop), arguments[1], strict=True):
            shown[batch.sizes[client]].append(client_batch)
        train_step(batch, context, models, momentum, group, *arguments)

    monkeypatch.setattr(ClientWorker, "_step", watch)
    monkeypatch.setattr(stacked, "train_step", watch_all)
    network, client_images = lenet(), clients(sizes=SIZES)
    engine = SequentialEngine(network, client_images) if name == "loop" else StackedEngine(network, client_images)
    play(engine, Method("own", "Own", FedAvg(), Argmax(), (Shot(),)), CUT, 6)
    for client, size in enumerate(SIZES):
        orders = [permutation(KEYS(first_round, client, "order 0"), size) for first_round in (0, 3)]
        assert not torch.equal(*orders)
        # A last batch of a single image is left out, as in whole epochs.
        parts = [part for order in orders for part in order.tensor_split(3)]
        trained_parts = [part if len(part) % 4 != 1 else part[:-1] for part in parts]
        assert torch.equal(torch.cat(shown[size]), torch.cat(trained_parts))


@pytest.mark.parametrize("sizes", [SIZES, (2, 3, 17, 4)], ids=str)
def test_engines_agree(sizes: tuple[int, ...]) -> None:
    method = Method("own", "Own", FedAvg(), TwoModel(mu=0.5), (Shot(),))
    rows = [play(engine(lenet(), clients(sizes=sizes)), method, CUT, 4) for engine in (SequentialEngine, StackedEngine)]
    assert float((rows[0] - rows[1]).abs().max()) < 1e-9
    uncut_rows = play(SequentialEngine(lenet(), clients(sizes=sizes)), method, Training(epochs=1, batch_size=4), 4)
    assert float((rows[0] - uncut_rows).abs().max()) > 1e-6


def test_one_epoch_is_cut_and_no_last_phase() -> None:
    with pytest.raises(ValidationError, match="it needs epochs = 1"):
        Training(epochs=2, rounds_per_epoch=2)
    with pytest.raises(ValidationError, match="the last phase is one round"):
        FinishTraining(epochs=1, rounds_per_epoch=2)


def test_runs_without_cuts_are_written_down_as_before() -> None:
    assert "rounds_per_epoch" not in Training().model_dump() | FinishTraining().model_dump(mode="json")
    assert Training(**CUT.model_dump(mode="json")) == CUT


@pytest.mark.parametrize(("rounds", "right"), [(7, "6 or 9"), (2, "3")])
def test_rounds_that_end_inside_an_epoch_are_refused(rounds: int, right: str) -> None:
    layer = {"target": "neon", "rounds": rounds, "training": {"epochs": 1, "rounds_per_epoch": 3}}
    with pytest.raises(UsageError, match=rf"{rounds} rounds end inside an epoch.*take --rounds {right}$"):
        resolve_plan(layer)
    assert resolve_plan({**layer, "rounds": 6}).methods[-1][1] == 7
