"""Times of the engine's parts; `pytest benchmarks --benchmark-enable`. Compare numbers of one run only."""

from __future__ import annotations

import time

import pytest
import torch
from plain import PlainLeNet, train

from fedwca import Keys, Method, SequentialEngine, Training, init_server, run_round
from fedwca.aggregators import aggregators
from fedwca.clusterers import clusterers
from fedwca.data.federation import ClientImages
from fedwca.engine.parameter_layout import mix_rows
from fedwca.engine.stacked import StackedEngine
from fedwca.functional import alignment, finch, soft_neighborhood_density
from fedwca.models import models
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel

CLIENTS, IMAGES, EPOCHS = 4, 128, 1
pytestmark = pytest.mark.benchmark(warmup=True, timer=time.process_time)


@pytest.fixture
def each(benchmark) -> int:
    """Images per client; few if nothing is timed and tests only check that the code runs."""
    return IMAGES if benchmark.enabled else 16


def federation(clients: int, images_per_client: int) -> list[ClientImages]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (clients, images_per_client, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return [ClientImages(x, x[:8]) for x in images]


def test_plain_loop(benchmark, each: int) -> None:
    """Training alone, without labelling: the work that no round can avoid."""
    images = [(client.train.float() / 255 - 0.5) / 0.5 for client in federation(CLIENTS, each)]
    labels = torch.randint(0, 10, (each,))
    plain_models = [PlainLeNet() for _ in images]
    benchmark(lambda: [train(m, x, labels, EPOCHS) for m, x in zip(plain_models, images, strict=True)])


@pytest.mark.parametrize(("model", "clients"), [("lenet", 4), ("lenet", 16), ("resnet18:weights=none,side=32", 4)])
@pytest.mark.parametrize("name", ["fedavg", "one_hot", "wca"])
@pytest.mark.parametrize("kind", ["loop", "stacked"])
def test_round(benchmark, each: int, kind: str, name: str, model: str, clients: int) -> None:
    """A complete round on one core: evidence, labels, training, averaging; also samples and steps per CPU second."""
    network, client_images = models.build(model).build(10), federation(clients, each)
    engine = (
        StackedEngine(network, client_images)
        if kind == "stacked"
        else SequentialEngine(network, client_images, "cpu", workers=1)
    )
    aggregator = aggregators.build(name)
    clusterer = clusterers.build("true") if aggregator.grouping.needs_clusterer else None
    method = Method(name, name, aggregator, TwoModel(), (Shot(),), clusterer)
    domains, training = torch.arange(clients) % 2, Training(epochs=EPOCHS)
    server, round = init_server(engine), 0
    if benchmark.enabled:  # timed is a round of models that differ
        server, _ = run_round(0, server, method, engine, training, Keys(0), domains)
        round = 1
    benchmark(lambda: run_round(round, server, method, engine, training, Keys(0), domains))
    if benchmark.stats is not None:
        samples, median = clients * each * EPOCHS, benchmark.stats.stats.median
        steps = samples / training.batch_size
        benchmark.extra_info.update({"samples_per_second": samples / median, "steps_per_second": steps / median})


@pytest.mark.parametrize("samples", [256, 2720])
def test_alignment(benchmark, samples: int) -> None:
    features, vectors = torch.randn(samples, 256), torch.randn(10, 256)
    benchmark(lambda: alignment(features, vectors))


@pytest.mark.parametrize("samples", [256, 2720])
def test_soft_neighborhood_density(benchmark, samples: int) -> None:
    probabilities = torch.randn(samples, 10).softmax(1)
    benchmark(lambda: soft_neighborhood_density(probabilities))


@pytest.mark.parametrize("backend", ["torch", "faiss"])
@pytest.mark.parametrize("clients", [32, 1000])
def test_finch(benchmark, clients: int, backend: str) -> None:
    x = torch.randn(clients, 1520, generator=torch.Generator().manual_seed(0))
    benchmark(lambda: finch(x, backend=backend))


@pytest.mark.parametrize("clients", [32, 256])
def test_mixing(benchmark, clients: int) -> None:
    rows = torch.randn(8, 347_850)
    weights = torch.rand(clients, 8).softmax(1)
    benchmark(lambda: mix_rows(weights, rows))
