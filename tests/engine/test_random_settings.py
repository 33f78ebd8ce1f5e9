"""Both engines give the same models for randomly drawn methods, clients and settings of training."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from fedwca.core.training_settings import Training
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from tests.engine.federations import DOMAINS, METHODS, clients, lenet, needed_rounds, trained

SIZES = (1, 8, 9, 12, 13, 17, 20, 25)
"""Images of a client; none leaves a batch of two or three, over which BatchNorm amplifies rounding errors."""


def draw_training(draws: random.Random) -> Training:
    """Settings of training, most of them at their defaults."""
    settings: dict[str, Any] = {"lr": 0.003, "batch_size": draws.choice([8, 12])}
    settings |= draws.choice([{"epochs": 1}, {"epochs": 2}, {"steps": 3}])
    optional = [
        {"clip": 0.01},
        {"cosine": 3},
        {"weight_decay": 0.0},
        {"trains": "extractor"},
        draws.choice([{"nesterov": True}, {"momentum": 0.0}]),
    ]
    for values in optional:
        settings |= values if draws.random() < 0.25 else {}
    return Training(**settings)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 200))])
def test_engines_agree(seed: int) -> None:
    draws = random.Random(seed)
    method, training = trained(draws.choice(METHODS)), draw_training(draws)
    client_images = clients(sizes=tuple(draws.choice(SIZES) for _ in DOMAINS))
    batch_norm = draws.choice(["mixed", "pooled", "local", "recalibrated"])
    participation, workers = draws.choice([1.0, 0.5, 0.25]), draws.choice([None, 1, 2, 3])

    def play(engine: Engine) -> Server:
        server = init_server(engine)
        for number in range(needed_rounds(method)):
            arguments = method, engine, method.training_in(training), Keys(0), DOMAINS, participation
            server, _ = run_round(number, server, *arguments)
        return server

    loop = SequentialEngine(lenet(), client_images, "cpu", 1, batch_norm)
    stacked = StackedEngine(lenet(), client_images, "cpu", workers, batch_norm)
    start = loop.bank.clone()
    loop_server, stacked_server = play(loop), play(stacked)
    assert not torch.equal(loop.bank, start)
    assert float((loop.bank - stacked.bank).abs().max()) <= 1e-8
    assert float((loop_server.rows - stacked_server.rows).abs().max()) <= 1e-8
