"""The same rounds on a GPU and on the CPU: the same draws, labels and masks, and models within rounding.

Skipped where there is no CUDA device; `pytest -m gpu -rs` says so. Matrix products run in full float32, without
TensorFloat-32, which rounds factors to ten bits. Convolutions run without cuDNN, whose algorithm for LeNet on an H100
gives gradients right to three digits only. Both would hide real mistakes.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.wca import WCA
from fedwca.clusterers.finch import Finch
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Drop, Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.dropout import dropout_masks
from fedwca.engine.interface import TrialsInTurn
from fedwca.engine.randomness import Keys, fold_key, uniform
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.stacked import StackedEngine, StackedTrials
from fedwca.engine.stacked import train as training_module
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.federated.close_round import Outcome, close_round
from fedwca.federated.method import Method
from fedwca.federated.open_round import open_round
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from fedwca.functional import alignment, soft_neighborhood_density
from fedwca.models.lenet import LeNet
from fedwca.newcomers.join import join
from fedwca.newcomers.load_federation import TrainedFederation
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype
from fedwca.pseudo_labelers.two_model import TwoModel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; there is none"),
]
CLIENTS = 6
DOMAINS = torch.arange(CLIENTS) // 2
TRAINING = Training(epochs=2, lr=0.003, batch_size=16)


@pytest.fixture(autouse=True)
def full_float32() -> Iterator[None]:
    """Turn off TensorFloat-32 and cuDNN."""
    original = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.backends.cudnn.flags(enabled=False):
        yield
    torch.backends.cuda.matmul.allow_tf32 = original


def some(n: int, client: int) -> Tensor:
    """Noise in one of three colours; every second image has a bright square."""
    drawn = uniform(fold_key([client, "pixels"]), torch.arange(n * 3 * 32 * 32)).view(n, 3, 32, 32)
    images = (drawn * 60).to(torch.uint8)
    images[:, client // 2 % 3] += 60
    images[1::2, :, 8:24, 8:24] += 100
    return images


def clients() -> list[ClientImages]:
    return [ClientImages(some(20 + k, k), some(6, k)) for k in range(CLIENTS)]


def network() -> Network:
    return LeNet(bottleneck=16).build(3, seed=1)


def method() -> Method:
    return Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(), Proximal()), Finch())


def rounds(device: str, number: int = 2, batch_norm: str = "mixed") -> tuple[SequentialEngine, Server, list[Outcome]]:
    """Some rounds of FedWCA on a device."""
    engine, wca_method, keys = SequentialEngine(network(), clients(), device, 1, batch_norm), method(), Keys(0)
    server, outcomes = init_server(engine), []
    for index in range(number):
        server, outcome = run_round(index, server, wca_method, engine, TRAINING, keys, DOMAINS)
        outcomes.append(outcome)
    return engine, server, outcomes


def close(expected: Tensor, actual: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(expected.cpu(), actual.cpu(), rtol=tolerance, atol=tolerance, check_dtype=True)


@pytest.mark.parametrize("batch_norm", ["mixed", "pooled", "local", "recalibrated"])
def test_two_rounds_of_fedwca_give_the_same_models(batch_norm: str) -> None:
    on_cpu, on_gpu = rounds("cpu", batch_norm=batch_norm), rounds("cuda", batch_norm=batch_norm)
    assert on_gpu[0].bank.is_cuda
    for expected, actual in zip(on_cpu[2], on_gpu[2], strict=True):
        assert torch.equal(expected.labels, actual.labels), "FINCH"
        close(expected.weights, actual.weights, 1e-2)
        for name, value in expected.report.items():
            close(value, actual.report[name], 1e-2)
        for client, upload in expected.uploads.items():
            targets, actual_targets = upload.targets, actual.uploads[client].targets
            assert float((targets.labels == actual_targets.labels.cpu()).double().mean()) > 0.9, (
                f"labels of client {client}"
            )
            assert upload.passes == actual.uploads[client].passes
    close(on_cpu[0].bank, on_gpu[0].bank, 2e-3)
    close(on_cpu[1].rows, on_gpu[1].rows, 2e-3)


def test_one_round_is_closer_still() -> None:
    """After one round, rounding has flipped no label yet: all targets agree."""
    on_cpu, on_gpu = rounds("cpu", 1), rounds("cuda", 1)
    for client, upload in on_cpu[2][0].uploads.items():
        targets, actual_targets = upload.targets, on_gpu[2][0].uploads[client].targets
        for name in ("labels", "weights", "partners", "partner_weights", "models_agree"):
            close(getattr(targets, name), getattr(actual_targets, name), 1e-4)
    close(on_cpu[0].bank, on_gpu[0].bank, 1e-4)
    for expected, actual in zip(on_cpu[0].predict_tests(), on_gpu[0].predict_tests(), strict=True):
        assert not actual.classes.is_cuda
        assert torch.equal(expected.classes, actual.classes)
        close(expected.confidences, actual.confidences, 1e-4)


def test_evidence_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Network, "eval_batch_size", 16)  # several batches
    replicas = {
        device: Replica(network().to(device), SequentialEngine(network(), clients()).layout)
        for device in ("cpu", "cuda")
    }
    row = SequentialEngine(network(), clients()).bank[0]
    values = {}
    for device, replica in replicas.items():
        replica.bind(row.to(device))
        predictions = replica.predict(some(50, 1).to(device))
        vectors = replica.class_vectors
        values[device] = (
            predictions.logits,
            alignment(predictions.features, vectors),
            soft_neighborhood_density(predictions.probabilities),
        )
    for expected, actual in zip(values["cpu"], values["cuda"], strict=True):
        assert actual.is_cuda
        close(expected, actual, 1e-4)


@pytest.mark.parametrize("labeler", [Prototype(), TwoModel()])
def test_labels_agree(labeler: Prototype | TwoModel) -> None:
    engine = SequentialEngine(network(), clients())
    results = {}
    for device in ("cpu", "cuda"):
        replica = Replica(network().to(device), engine.layout)
        predictions = {}
        for index, name in enumerate(labeler.models):
            replica.bind((engine.bank[0] * (1 + index / 10)).to(device))
            predictions[name] = replica.predict(some(40, 2).to(device))
        draws = uniform(7, torch.arange(40)).to(device)
        results[device] = labeler(predictions, draws)
    for name in ("labels", "weights", "partners", "partner_weights", "models_agree"):
        close(getattr(results["cpu"], name), getattr(results["cuda"], name), 1e-4)


def test_draws_and_masks_are_the_same_bits() -> None:
    counters = torch.arange(10_000)
    assert torch.equal(uniform(fold_key(["gpu"]), counters), uniform(fold_key(["gpu"]), counters.cuda()).cpu())
    drops = (Drop(0.5, (50, 1, 1)), Drop(0.3, (256,)))
    positions = torch.tensor([0, 1, 5, 64, 70])
    cpu_masks = dropout_masks(drops, fold_key(["mask"]), 3, positions, 128)
    gpu_masks = dropout_masks(drops, fold_key(["mask"]), 3, positions.cuda(), 128)
    assert all(b.is_cuda and torch.equal(a, b.cpu()) for a, b in zip(cpu_masks, gpu_masks, strict=True))


def test_clusters_agree() -> None:
    engine, server, _ = rounds("cpu", 1)
    clusters = {
        device: Finch()(BankSignatures(engine.bank.to(device), engine.layout, server.source.to(device))).cpu()
        for device in ("cpu", "cuda")
    }
    assert torch.equal(clusters["cpu"], clusters["cuda"])


@pytest.mark.parametrize("by", ["update", "alignment"])
def test_a_newcomer_joins_the_same_cluster(by: str) -> None:
    _, server, outcomes = rounds("cpu")
    results = {}
    for device in ("cpu", "cuda"):
        device_server = Server(server.rows.to(device), server.state, server.source.to(device))
        federation = TrainedFederation(
            method(), network(), clients(), device_server, outcomes[-1].labels, TRAINING, Keys(0), device=device
        )
        results[device] = join(federation, some(20, 3), by, 1)  # type: ignore[arg-type]
    assert results["cpu"].choice.cluster == results["cuda"].choice.cluster
    for name, value in results["cpu"].network.state_dict().items():
        close(value, results["cuda"].network.state_dict()[name], 2e-3)


@pytest.mark.parametrize("name", ["fedwca", "fedscal"])
def test_the_stacked_engine_gives_the_models_of_the_cpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """And no training step but the first waits for the device, with strong views or without."""
    train_step, done = training_module.train_step, 0

    def watched(*arguments: Any) -> None:
        nonlocal done
        with warnings.catch_warnings(
            action="ignore"
        ):  # torch warns once that this mode does not see every synchronization
            torch.cuda.set_sync_debug_mode("error" if done else "default")
        try:
            train_step(*arguments)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        done += 1

    monkeypatch.setattr(training_module, "train_step", watched)
    composed = compose(RunConfig(baselines=(name,)))[0][0]
    loop, stacked = SequentialEngine(network(), clients(), "cpu", 1), StackedEngine(network(), clients(), "cuda")
    for engine in (loop, stacked):
        run_round(0, init_server(engine), composed, engine, TRAINING, Keys(0), DOMAINS)
    assert done
    close(loop.bank, stacked.bank, 1e-4)


def test_trials_together_give_the_models_of_the_cpu() -> None:
    networks = [LeNet(bottleneck=16).build(3, seed=seed) for seed in (1, 2)]
    together = StackedTrials([copy.deepcopy(model) for model in networks], [clients(), clients()], "cuda")
    alone = TrialsInTurn([StackedEngine(model, clients(), "cpu") for model in networks])
    for trials in (alone, together):
        opened_rounds = {
            i: open_round(0, init_server(engine), method(), engine, TRAINING, Keys(i), DOMAINS)
            for i, engine in enumerate(trials.engines)
        }
        for i, uploads in trials.run(opened_rounds).items():
            close_round(opened_rounds[i], uploads)
    for cpu_engine, gpu_engine in zip(alone.engines, together.engines, strict=True):
        close(cpu_engine.bank, gpu_engine.bank, 1e-4)


def test_device_memory_is_flat_over_twenty_rounds() -> None:
    """Allocated memory after a round and its peak within it are no higher in late rounds than in early ones."""
    from fedwca.engine.stacked import StackedEngine

    # No mixed images: their number, and with it the size of steps, would change from round to round.
    wca_method = Method("wca", "FedWCA", WCA(), Prototype(), (Shot(), Proximal()), Finch())
    for engine in (StackedEngine(network(), clients(), "cuda"), SequentialEngine(network(), clients(), "cuda", 1)):
        server, keys, held, peaks = init_server(engine), Keys(0), [], []
        for index in range(20):
            torch.cuda.reset_peak_memory_stats()
            server, outcome = run_round(index, server, wca_method, engine, TRAINING, keys, DOMAINS)
            del outcome
            held.append(torch.cuda.memory_allocated())
            peaks.append(torch.cuda.max_memory_allocated())
        # Python frees some objects of a round only some rounds later, so rounds differ a little.
        # The first round also allocates what stays for all rounds.
        assert max(held[10:]) <= max(held[1:10]), held
        assert max(peaks[10:]) <= max(peaks[1:10]), peaks


@pytest.mark.parametrize("kernels", ["channels-last", "graphs"])
def test_other_kernels_give_the_models_of_the_cpu(kernels: Kernels) -> None:
    from fedwca.engine.stacked import StackedEngine

    loop, stacked = (
        SequentialEngine(network(), clients(), "cpu", 1),
        StackedEngine(network(), clients(), "cuda", kernels=kernels),
    )
    for engine in (loop, stacked):
        run_round(0, init_server(engine), method(), engine, TRAINING, Keys(0), DOMAINS)
    close(loop.bank, stacked.bank, 1e-4)


def test_kernels_are_measured_on_the_device() -> None:
    from fedwca.engine.stacked.tuning.benchmark import benchmark_kernels, pick_kernels

    images = torch.stack([some(16, client) for client in range(CLIENTS)]).cuda()
    results = benchmark_kernels(network().cuda(), images, "fp32", ["eager", "channels-last", "graphs"])
    assert "error" not in results["channels-last"]
    assert all(result["apart"] <= 1e-3 for result in results.values() if "error" not in result)
    assert pick_kernels(results) in results
