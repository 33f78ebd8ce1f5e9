"""The clients' part of a round on a device whose values cannot be read: nothing in it waits for the device.

Tensors on torch's ``meta`` device have shapes but no values, and reading a value is an error. What runs to its end
there runs on a GPU without the host waiting for it. The one exception is tested by name, and counted.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fedwca
from fedwca.core.network import Network
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.engine.stacked import engine as engines
from fedwca.engine.stacked import worker as workers
from fedwca.engine.stacked.mini_batches import StepSchedule
from fedwca.engine.stacked.trials_together import StackedTrials
from fedwca.engine.stacked.tuning.graphs import RecordedSteps
from fedwca.federated import simulated_uploads as uploads
from fedwca.federated.open_round import OpenRound, open_round
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from fedwca.pseudo_labelers import pseudo_labelers
from tests.engine.federations import DOMAINS, KINDS, TRAINING, ShortResNet, Thin, clients, trained

from .tape import Tapes, tensors

FAR = torch.device("meta")
SIZES = (12, 12, 12, 9)
"""Images of each client: a full batch, then one of 4 images and a single image, which is left out."""
ALIKE = (32,) * 4
"""So many that steps of one kind are recorded, also where labels are renewed in each epoch."""
OURS = str(Path(fedwca.__file__).parent)


class Border(TorchDispatchMode):
    """Records who moves values between the host and the far device, other than by `fedwca.engine.device_copy`."""

    def __init__(self) -> None:
        super().__init__()
        self.crossed: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # A host tensor without dimensions is an argument of the call; it counts only if the call copies it.
        is_copy = "copy" in str(func)
        if len({x.device.type for x in tensors((args, kwargs, result)) if x.ndim or is_copy}) > 1:
            frames = [(f.filename, f.lineno) for f in traceback.extract_stack() if f.filename.startswith(OURS)]
            if not frames or not frames[-1][0].endswith("device_copy.py"):
                self.crossed.append(f"{func} in {frames[-1:]}")
        return result


class Places(TorchFunctionMode):
    """Records who indexes a far tensor by lists or tensors on the host, or assigns numbers of the host to it.

    Some versions of torch copy these from pageable memory, and wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.crossed: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.__getitem__, Tensor.__setitem__) and args[0].device == FAR:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            from_host = [
                isinstance(index, list) or (isinstance(index, Tensor) and index.device != FAR) for index in indices
            ]
            assigns_number = func is Tensor.__setitem__ and not isinstance(args[2], Tensor)
            if any(from_host) or (assigns_number and not any(isinstance(index, slice) for index in indices)):
                frames = [(f.filename, f.lineno) for f in traceback.extract_stack() if f.filename.startswith(OURS)]
                self.crossed.append(f"{func.__name__} in {frames[-1:]}")
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def nothing_is_made_there_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse `torch.tensor` on a device: it copies from pageable memory, and waits."""
    original = torch.tensor

    def host_tensor(*args: Any, **kwargs: Any) -> Tensor:
        assert torch.device(kwargs.get("device") or "cpu").type == "cpu", (
            "numbers go to a device by device_copy.to_device"
        )
        return original(*args, **kwargs)

    monkeypatch.setattr(engines, "CudaGraphs", Again)
    monkeypatch.setattr(torch, "tensor", host_tensor)
    # Values copied to the host are read at the end of the round, after the one intended wait.
    for module in (workers, uploads):
        monkeypatch.setattr(module, "to_host_async", lambda values: values)


class Again(Tapes):
    """Recording runs the work. Playing does nothing, as it would do the same again, and here values do not exist."""

    def __call__(self, work: Callable[[], object]) -> Callable[[], None]:
        self.recorded += 1
        work()
        return lambda: None


def networks(count: int = 1) -> list[Network]:
    return [Thin(bottleneck=16).build(3, seed=seed) for seed in range(1, 1 + count)]


@cache
def begun(name: str, seed: int, batch_norm: str, sizes: tuple[int, ...]) -> tuple[Server, OpenRound]:
    """The server of a federation after round 0, and its opened round 1."""
    loop, method = SequentialEngine(networks(seed)[-1], clients(sizes=sizes), "cpu", 1, batch_norm), trained(name)
    server, _ = run_round(0, init_server(loop), method, loop, TRAINING, Keys(0), DOMAINS)
    return server, open_round(1, server, method, loop, TRAINING, Keys(0), DOMAINS)


def far(name: str, engine: StackedEngine, seed: int = 1, batch_norm: str = "mixed") -> OpenRound:
    """Round 1 of a federation for an engine on the far device; round 0 was run on the CPU."""
    server, opened = begun(name, seed, batch_norm, tuple(engine.sizes.tolist()))
    far_server = replace(server, rows=server.rows.to(FAR), source=server.source.to(FAR))
    return replace(opened, engine=engine, server=far_server)


def work(
    opened_rounds: Sequence[OpenRound], engines: Sequence[StackedEngine], trials: StackedTrials | None = None
) -> list[str]:
    """Run everything from the first message to the uploads of all clients; returns what was moved meanwhile."""
    with Places() as places, Border() as border:
        if trials is not None:
            uploads_by_trial = trials.run(dict(enumerate(opened_rounds)))
        else:
            (opened,), (engine,) = opened_rounds, engines
            uploads_by_trial = {0: engine.run(opened)}
    assert all(
        upload.targets.labels.device == FAR for trial_uploads in uploads_by_trial.values() for upload in trial_uploads
    )
    return border.crossed + places.crossed


@pytest.mark.parametrize("name", KINDS)
def test_recorded_steps_leave_nothing_to_wait_for(name: str) -> None:
    engine = StackedEngine(networks()[0], clients(sizes=ALIKE), FAR, kernels="graphs")
    assert work([far(name, engine)], [engine]) == []
    assert isinstance(engine.capture, RecordedSteps)
    assert engine.capture.record.recorded or name == "source_ada_bn"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", KINDS)
def test_otherwise_the_host_waits_once_a_labelling_if_images_are_mixed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0

    def count(plan: StepSchedule, mix: Tensor) -> list[list[list[int]]]:
        nonlocal counted
        counted += 1
        return [[[3] * plan.steps for _ in plan.epochs] for _ in mix]

    monkeypatch.setattr(StepSchedule, "_count", count)
    engine, method = StackedEngine(networks()[0], clients(sizes=SIZES), FAR), trained(name)
    assert work([far(name, engine)], [engine]) == []
    labellings = TRAINING.epochs if method.pseudo_labeler.renew == "epoch" else 1
    assert counted == (labellings if method.pseudo_labeler.mixes else 0)


@pytest.mark.parametrize("name", ["fedwca", "fedscal"])
def test_trials_together_wait_for_nothing(name: str) -> None:
    trials = StackedTrials(networks(2), [clients(sizes=ALIKE)] * 2, FAR, kernels="graphs")
    stacked_engines = [engine for engine in trials.engines if isinstance(engine, StackedEngine)]
    opened_rounds = [far(name, engine, seed) for seed, engine in enumerate(stacked_engines, 1)]
    assert work(opened_rounds, stacked_engines, trials) == []


@pytest.mark.parametrize("batch_norm", ["pooled", "local", "recalibrated"])
def test_no_batchnorm_policy_waits(batch_norm: str) -> None:
    engine = StackedEngine(networks()[0], clients(sizes=SIZES), FAR, batch_norm=batch_norm, kernels="graphs")
    assert work([far("fedwca", engine, batch_norm=batch_norm)], [engine]) == []


def test_residual_networks_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    architecture = ShortResNet.model_validate({"weights": "none", "side": 32, "bottleneck": 8})
    client_images = clients(architecture.stored_side, (8, 16))
    network, twin, method = architecture.build(3, seed=1), architecture.build(3, seed=1), trained("fedwca")
    training = TRAINING.model_copy(update={"epochs": 1})
    engine = StackedEngine(twin, client_images, FAR, kernels="graphs")
    loop = SequentialEngine(network, client_images, "cpu", 1)
    server, _ = run_round(0, init_server(loop), method, loop, training, Keys(0), DOMAINS[:2])
    opened = open_round(1, server, method, loop, training, Keys(0), DOMAINS[:2])
    far_server = replace(server, rows=server.rows.to(FAR), source=server.source.to(FAR))
    assert work([replace(opened, engine=engine, server=far_server)], [engine]) == []


def test_the_border_is_watched() -> None:
    with Border() as border:
        torch.ones(3).to(FAR)
    assert len(border.crossed) == 1
    with Places() as places:
        far = torch.ones(3, 3, device=FAR)
        far[0, 0] = 5
        far[[0, 1]]
        far[:, 0] = 5
        far[0, 0].fill_(5)
    assert len(places.crossed) == 2
    with pytest.raises(RuntimeError, match="meta"):
        bool(torch.ones(1, device=FAR))
    with pytest.raises(AssertionError, match="device_copy"):
        torch.tensor([1], device=FAR)


@pytest.mark.parametrize("name", list(pseudo_labelers.names()))
def test_labelers_that_say_so_mix_nothing(name: str) -> None:
    labeler = pseudo_labelers.build(name)
    loop = SequentialEngine(networks()[0], clients(), "cpu", 1)
    method = replace(trained("fedwca"), pseudo_labeler=labeler)
    server, _ = run_round(0, init_server(loop), method, loop, TRAINING, Keys(0), DOMAINS)
    _, outcome = run_round(1, server, method, loop, TRAINING, Keys(0), DOMAINS)
    mixed = any(bool((upload.targets.partner_weights > 0).any()) for upload in outcome.uploads.values())
    assert labeler.mixes == (name == "two_model")
    assert mixed <= labeler.mixes
