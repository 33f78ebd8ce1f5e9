"""Kernels of the stacked engine: other memory formats give the same steps, and which one is chosen."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedwca.aggregators.fedavg import FedAvg
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.randomness import Keys, fold_key, uniform
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.engine.stacked import network as networks
from fedwca.engine.stacked.network import StackedInput, StackedNetwork
from fedwca.engine.stacked.tuning import benchmark as contests
from fedwca.engine.stacked.tuning.benchmark import benchmark_kernels, pick_kernels
from fedwca.engine.stacked.tuning.kernels import Kernels, channels_last_batch, default_kernels
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.models.lenet import LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel

from .tape import Tapes


def network() -> Network:
    return LeNet(bottleneck=8).build(3, seed=1)


def images(client: int, n: int) -> torch.Tensor:
    drawn = uniform(fold_key([client, "kernels"]), torch.arange(n * 3 * 32 * 32)).view(n, 3, 32, 32)
    return (255 * drawn).to(torch.uint8)


def clients(*sizes: int) -> list[ClientImages]:
    return [ClientImages(images(k, n), images(k, 0)) for k, n in enumerate(sizes or (14, 14, 9))]


def bank_after(engine: SequentialEngine | StackedEngine, rounds: int = 1) -> torch.Tensor:
    """The clients' models after rounds with mixed images and dropout."""
    method = Method("wca", "FedAvg", FedAvg(), TwoModel(mu=0.5), (Shot(),))
    server = init_server(engine)
    for index in range(rounds):
        training = Training(epochs=2, lr=0.003, batch_size=8)
        server, _ = run_round(index, server, method, engine, training, Keys(0), torch.zeros(3, dtype=torch.int64))
    return engine.bank


def apart(kernels: Kernels, *sizes: int) -> float:
    """Largest distance of a client's stacked model from the loop's, relative to the norm of its update."""
    loop = SequentialEngine(network(), clients(*sizes), "cpu", 1)
    start = loop.bank.clone()
    loop_bank, stacked_bank = (
        bank_after(loop),
        bank_after(StackedEngine(network(), clients(*sizes), "cpu", kernels=kernels)),
    )
    return float(((stacked_bank - loop_bank).norm(dim=1) / (loop_bank - start).norm(dim=1)).max())


def test_a_channels_last_batch_is_contiguous_without_a_copy() -> None:
    x = torch.arange(2 * 3 * 4 * 5 * 6).view(2, 3, 4, 5, 6)
    moved = channels_last_batch(x)
    assert torch.equal(moved, x)
    batch = moved.permute(1, 0, 2, 3, 4).flatten(1, 2)
    assert batch.data_ptr() == moved.data_ptr(), "a view: nothing is copied on the way to a grouped convolution"
    assert batch.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kernels", ["eager", "channels-last"])
def test_kernels_give_the_models_of_the_loop(kernels: Kernels) -> None:
    assert apart(kernels) <= 1e-3


@pytest.mark.parametrize("training", [True, False])
def test_by_hand_equals_vmap(training: bool) -> None:
    model = LeNet(bottleneck=8).build(3, seed=1).double()
    layout = SequentialEngine(model, clients()).layout
    rows = layout.read(model) * torch.tensor([[1.0], [1.1], [0.9]], dtype=torch.float64)
    parameters = {slot.name: slot.of(rows) for slot in layout.parameters}
    statistics = {slot.name: slot.of(rows).abs() for slot in layout.statistics}
    x = torch.stack([model.prepare(images(k, 6)) for k in range(3)])
    masks = [
        uniform(fold_key(["mask"]), torch.arange(18 * drop.shape[0])).view(3, 6, *drop.shape) for drop in model.drops
    ]
    real = torch.arange(6).expand(3, 6) < 5
    results = []
    for by_hand in (True, False):
        stacked = StackedNetwork(model, layout, by_hand=by_hand)
        assert stacked.by_hand == by_hand
        results.append(stacked(parameters, statistics, StackedInput(x, masks if training else (), real), training))
    for expected, actual in zip(results[0][:2], results[1][:2], strict=True):
        torch.testing.assert_close(expected, actual, rtol=0, atol=1e-12)
    assert results[0][2].keys() == results[1][2].keys()
    for name, value in results[0][2].items():
        torch.testing.assert_close(value, results[1][2][name], rtol=0, atol=1e-12)


def test_default_kernels_by_network_and_device() -> None:
    residual = ResNet18.model_validate({"weights": "none", "side": 32}).build(3)
    cpu, meta = torch.device("cpu"), torch.device("meta")
    assert [default_kernels(network(), cpu), default_kernels(residual, cpu), default_kernels(network(), meta)] == [
        "channels-last",
        "eager",
        "eager",
    ]
    assert StackedEngine(network(), clients()).stacked.kernels == "channels-last"


def test_a_changed_forward_is_not_run_by_hand() -> None:
    lenet = LeNet(bottleneck=8).build(3).backbone

    class Changed(type(lenet)):  # type: ignore[misc]
        def forward(self, x: torch.Tensor, masks: object) -> torch.Tensor:
            return super().forward(x, masks) * 2

    class Renamed(type(lenet)):  # type: ignore[misc]
        pass

    assert lenet.has_forward_stacked
    assert Renamed(0.5).has_forward_stacked
    assert not Changed(0.5).has_forward_stacked, "it would be trained as what it was made from"
    assert not ResNet18.model_validate({"weights": "none", "side": 32}).build(3).backbone.has_forward_stacked


def test_recorded_steps_are_in_the_contest_and_have_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    entries, original_init = {}, contests.Candidate.__init__

    def watched(entry: contests.Candidate, *arguments: object) -> None:
        original_init(entry, *arguments)  # type: ignore[arg-type]
        entries[arguments[3]] = entry

    monkeypatch.setattr(contests.Candidate, "__init__", watched)
    pixels = torch.stack([images(0, 6), images(1, 6)])
    without_cuda = benchmark_kernels(network(), pixels, "fp32", ["eager", "graphs"], steps=1)
    assert without_cuda["graphs"] == {"error": "UsageError: kernels graphs needs a CUDA device, not cpu; take eager"}
    monkeypatch.setattr(contests, "CudaGraphs", Tapes)
    for mixes, images_of_each in ((False, (6, 6)), (True, (9, 12))):
        results = benchmark_kernels(network(), pixels, "fp32", ["eager", "graphs"], steps=2, mixes=mixes)
        assert all(0 < result["apart"] < 1e-4 for result in results.values())
        assert (entries["eager"].x.shape[1], entries["graphs"].x.shape[1]) == images_of_each
        record = entries["graphs"]._record
        assert isinstance(record, Tapes)
        assert (record.recorded, record.played) == (1, 3)


def test_a_contest_measures_and_changes_nothing() -> None:
    model = network()
    initial_state = {name: value.clone() for name, value in model.state_dict().items()}
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    results = benchmark_kernels(
        model, torch.stack([images(0, 6), images(1, 6)]), "fp32", ["eager", "channels-last"], steps=1
    )
    assert set(results) == {"eager", "channels-last"}
    # All are off from float64 by float32's rounding.
    assert all(0 < result["apart"] < 1e-4 for result in results.values())
    assert all(result["seconds"] > 0 and result["first_seconds"] > 0 for result in results.values())
    assert all(torch.equal(value, initial_state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index]
    assert random.getstate() == states[2]


def test_a_candidate_that_fails_is_recorded_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such order here\nand a long story")

    monkeypatch.setattr(networks, "channels_last_batch", refuse)
    results = benchmark_kernels(network(), images(0, 6)[None], "fp32", ["eager", "channels-last"], steps=1)
    assert results["channels-last"] == {"error": "RuntimeError: no such order here"}
    assert pick_kernels(results) == "eager"


def test_recordings_that_leave_no_memory_for_the_others_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    original_timed, candidates = contests.Candidate.timed, []

    def fill(entry: contests.Candidate, clock: Callable[[], float]) -> tuple[float, torch.Tensor]:
        candidates.append(entry)
        if len(candidates) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original_timed(entry, clock)

    monkeypatch.setattr(contests, "CudaGraphs", Tapes)
    monkeypatch.setattr(contests.Candidate, "timed", fill)
    results = benchmark_kernels(network(), images(0, 6)[None], "fp32", ["eager", "graphs"], steps=1)
    assert results["graphs"] == {"error": "its memory and that of the others are more than the device has"}
    assert results["eager"]["seconds"] > 0
    candidates.clear()
    with pytest.raises(torch.OutOfMemoryError):
        benchmark_kernels(network(), images(0, 6)[None], "fp32", ["eager", "channels-last"], steps=1)


def test_wrong_numbers_and_small_gains_are_not_taken() -> None:
    eager = {"seconds": 1.0, "apart": 1e-6}
    assert pick_kernels({"eager": eager, "graphs": {"seconds": 0.5, "apart": 0.04}}) == "eager"
    assert (
        pick_kernels({"eager": {"seconds": 1.0, "apart": 0.02}, "graphs": {"seconds": 0.5, "apart": 0.05}}) == "graphs"
    )
    assert pick_kernels({"eager": eager, "graphs": {"seconds": 0.98, "apart": 1e-6}}) == "eager"
    assert pick_kernels({"eager": eager, "channels-last": {"seconds": 0.9, "apart": 2e-6}}) == "channels-last"


def test_an_error_of_eager_itself_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(entry: object, clock: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(contests.Candidate, "timed", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        benchmark_kernels(network(), images(0, 6)[None], "fp32", ["eager"])
