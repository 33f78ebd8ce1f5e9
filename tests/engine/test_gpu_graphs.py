"""CUDA graphs on a GPU: eager's models, flat memory, no waiting, and the fallback where steps cannot be recorded."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.core.training_settings import Precision, Training
from fedwca.engine.interface import TrialsInTurn
from fedwca.engine.randomness import Keys
from fedwca.engine.stacked import StackedEngine, StackedTrials
from fedwca.engine.stacked import engine as engines
from fedwca.engine.stacked.mini_batches import StepSchedule
from fedwca.engine.stacked.tuning.graphs import CudaGraphs
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.federated.close_round import close_round
from fedwca.federated.method import Method
from fedwca.federated.open_round import open_round
from fedwca.federated.round import init_server, run_round
from fedwca.models.lenet import LeNet
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel

from .test_gpu import DOMAINS, clients, close, network
from .test_graphs import plainly
from .test_trials import played

DEVICE = "cuda"
TRAINING = Training(epochs=3, lr=0.003, batch_size=4)
"""Five steps or more of the same clients in an epoch, so that they are recorded."""
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; there is none"),
]


@pytest.fixture(autouse=True)
def same_algorithms() -> Iterator[None]:
    """cuDNN's deterministic algorithms, in full float32."""
    original = torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = original


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each recording."""
    recordings: list[int] = []
    original_call = CudaGraphs.__call__

    def watched(graphs: CudaGraphs, work: Callable[[], object]) -> Callable[[], None]:
        recordings.append(1)
        return original_call(graphs, work)

    monkeypatch.setattr(CudaGraphs, "__call__", watched)
    return recordings


def named(name: str) -> Method:
    return compose(RunConfig(baselines=(name,)))[0][0]


def after(trials: TrialsInTurn, method: Method) -> list[Tensor]:
    played(trials, method, training=TRAINING, domains=DOMAINS)
    return [engine.bank for engine in trials.engines]


def alone(kernels: Kernels, precision: Precision = "fp32") -> TrialsInTurn:
    return TrialsInTurn([StackedEngine(network(), clients(), DEVICE, precision=precision, kernels=kernels)])


def unrecorded(trials: TrialsInTurn) -> TrialsInTurn:
    """Make the engines run steps one by one, padded for mixed images as in recordings: sums are in the same order."""
    for engine in trials.engines:
        assert isinstance(engine, StackedEngine)
        engine.capture = plainly
    return trials


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["fedwca", "fedscal", "fedpcl_pl", "fedprox"])
def test_recorded_steps_give_eagers_models(name: str, precision: Precision, recorded: list[int]) -> None:
    (eager,) = after(unrecorded(alone("graphs", precision)), named(name))
    assert not recorded
    (graphs,) = after(alone("graphs", precision), named(name))
    assert recorded
    close(eager, graphs, 1e-3 if precision == "fp32" else 3e-2)


@pytest.mark.filterwarnings("error")
def test_recorded_trials_together_give_eagers_models(recorded: list[int]) -> None:
    networks = [LeNet(bottleneck=16).build(3, seed=seed) for seed in (1, 2)]
    eager_trials, graph_trials = (
        StackedTrials(
            [copy.deepcopy(network) for network in networks], [clients(), clients()], DEVICE, kernels="graphs"
        )
        for _ in range(2)
    )
    banks = after(unrecorded(eager_trials), named("fedwca")), after(graph_trials, named("fedwca"))
    assert recorded
    for eager, graphs in zip(*banks, strict=True):
        close(eager, graphs, 1e-3)


def test_memory_is_flat_over_twenty_rounds() -> None:
    """Allocated and reserved memory; recordings are made and dropped in every round."""
    (engine,) = alone("graphs").engines
    server, allocated, reserved = init_server(engine), [], []
    for number in range(20):
        server, outcome = run_round(number, server, named("fedwca"), engine, TRAINING, Keys(0), DOMAINS)
        del outcome
        allocated.append(torch.cuda.memory_allocated())
        reserved.append(torch.cuda.memory_reserved())
    assert set(allocated[1:]) == {allocated[1]}, allocated
    assert max(reserved[2:]) <= reserved[2], reserved


@pytest.mark.parametrize("kernels", ["eager", "graphs"])
def test_the_clients_part_of_a_round_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, kernels: Kernels) -> None:
    """From the first message to the uploads, except for the one count of mixed images that eager steps need."""
    (engine,) = alone(kernels).engines
    method = named("fedwca")
    server, _ = run_round(0, init_server(engine), method, engine, TRAINING, Keys(0), DOMAINS)
    server, _ = run_round(1, server, method, engine, TRAINING, Keys(0), DOMAINS)
    counted = 0

    def allowing_sync(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal counted
            counted += 1
            torch.cuda.set_sync_debug_mode("default")
            try:
                return function(*arguments)
            finally:
                torch.cuda.set_sync_debug_mode("error")

        return call

    monkeypatch.setattr(engines, "synchronize", allowing_sync(engines.synchronize))
    monkeypatch.setattr(StepSchedule, "_count", allowing_sync(StepSchedule._count))
    opened = open_round(2, server, method, engine, TRAINING, Keys(0), DOMAINS)
    with warnings.catch_warnings(action="ignore"):
        torch.cuda.set_sync_debug_mode("error")
    try:
        uploads = engine.run(opened)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert counted == (1 if kernels == "graphs" else 2)
    close_round(opened, uploads)


class Asking(Objective):
    """Reads a value from the device in every step."""

    label = "asking"

    def __call__(self, batch: Batch) -> Tensor:
        return batch.logits.square().mean() * float(batch.logits.detach().abs().max() > 0)


@pytest.mark.filterwarnings("ignore:the loss of .* cannot be run for all clients at once")
def test_what_asks_the_device_for_a_number_runs_as_it_is(recorded: list[int]) -> None:
    method = Method("asking", "asking", FedAvg(), TwoModel(), (Shot(), Asking()))
    (eager,) = after(unrecorded(alone("graphs")), method)
    with pytest.warns(UserWarning, match="steps cannot be recorded as CUDA graphs"):
        (graphs,) = after(alone("graphs"), method)
    assert not recorded, "it is seen before"
    close(eager, graphs, 1e-3)
    torch.cuda.empty_cache()


def test_after_a_recording_that_failed_all_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the check before a recording misses a synchronization."""

    def synchronize(value: Tensor) -> None:
        if torch.cuda.is_current_stream_capturing():
            value.sum().item()

    graphs = CudaGraphs(torch.device(DEVICE))
    value = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError):
        graphs(lambda: synchronize(value))
    assert float(value.sum()) == 3
    total = torch.zeros(3, device=DEVICE)
    replay = CudaGraphs(torch.device(DEVICE))(lambda: total.add_(value))
    replay()
    replay()
    assert total.tolist() == [2, 2, 2]
