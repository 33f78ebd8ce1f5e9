"""Clients' part of a round on a device whose values nobody can read: nothing there waits for the device.

Tensors on torch's ``meta`` device have shapes and no values. Whoever asks one for a number gets an error, so what runs
to its end there would run on a GPU without the host waiting for it. The one exception is named and counted.
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
from fedwca.federated import simulated_uploads as uploads
from fedwca.federated.round import OpenRound, init_server, open_round, run_round
from fedwca.federated.server import Server
from fedwca.models.lenet import LeNet
from fedwca.pseudo_labelers import pseudo_labelers
from tests.engine.federations import DOMAINS, KINDS, METHODS, TRAINING, ShortResNet, Thin, clients, trained

from .tape import Tapes, tensors

FAR = torch.device("meta")
OURS = str(Path(fedwca.__file__).parent)


class Border(TorchDispatchMode):
    """Keeps who moves values between the host and the far device, other than by `fedwca.engine.device_copy`."""

    def __init__(self) -> None:
        super().__init__()
        self.crossed: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        # A number on the host travels with a call, unless it is the call.
        moves = "copy" in str(func)
        if len({x.device.type for x in tensors((args, kwargs, found)) if x.ndim or moves}) > 1:
            ours = [(f.filename, f.lineno) for f in traceback.extract_stack() if f.filename.startswith(OURS)]
            if not ours or not ours[-1][0].endswith("device_copy.py"):
                self.crossed.append(f"{func} in {ours[-1:]}")
        return found


class Places(TorchFunctionMode):
    """Keeps who names places of a far tensor by what is on the host, or gives them numbers of the host.

    Some versions of torch copy these from ordinary memory, and wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.crossed: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.__getitem__, Tensor.__setitem__) and args[0].device == FAR:
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            here = [isinstance(place, list) or (isinstance(place, Tensor) and place.device != FAR) for place in places]
            number = func is Tensor.__setitem__ and not isinstance(args[2], Tensor)
            if any(here) or (number and not any(isinstance(place, slice) for place in places)):
                ours = [(f.filename, f.lineno) for f in traceback.extract_stack() if f.filename.startswith(OURS)]
                self.crossed.append(f"{func.__name__} in {ours[-1:]}")
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def nothing_is_made_there_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.tensor` on a device copies from ordinary memory, and waits."""
    real = torch.tensor

    def here(*args: Any, **kwargs: Any) -> Tensor:
        assert torch.device(kwargs.get("device") or "cpu").type == "cpu", (
            "numbers go to a device by device_copy.to_device"
        )
        return real(*args, **kwargs)

    monkeypatch.setattr(engines, "CudaGraphs", Again)
    monkeypatch.setattr(torch, "tensor", here)
    # What is fetched is read at the end of the round, after the one wait that is meant.
    for module in (workers, uploads):
        monkeypatch.setattr(module, "to_host_async", lambda values: values)


class Again(Tapes):
    """Recordings are made by running the work; played, it runs again."""

    def __call__(self, work: Callable[[], object]) -> Callable[[], None]:
        work()
        return lambda: work() and None  # type: ignore[func-returns-value]


def networks(count: int = 1) -> list[Network]:
    return [Thin(bottleneck=16).build(3, seed=seed) for seed in range(1, 1 + count)]


@cache
def begun(name: str, seed: int, batch_norm: str) -> tuple[Server, OpenRound]:
    """A federation after round 0, and its turn in round 1."""
    loop, method = SequentialEngine(networks(seed)[-1], clients(), "cpu", 1, batch_norm), trained(name)
    server, _ = run_round(0, init_server(loop), method, loop, TRAINING, Keys(0), DOMAINS)
    return server, open_round(1, server, method, loop, TRAINING, Keys(0), DOMAINS)


def far(name: str, engine: StackedEngine, seed: int = 1, batch_norm: str = "mixed") -> OpenRound:
    """Round 1 of a federation, round 0 of which was played here; the server's rows are far away."""
    server, opened = begun(name, seed, batch_norm)
    moved = replace(server, rows=server.rows.to(FAR), source=server.source.to(FAR))
    return replace(opened, engine=engine, server=moved)


def work(
    opened_rounds: Sequence[OpenRound], engines: Sequence[StackedEngine], trials: StackedTrials | None = None
) -> list[str]:
    """Everything from the first message to the uploads of all clients; what crossed the border meanwhile."""
    with Places() as places, Border() as border:
        if trials is not None:
            found = trials.run(dict(enumerate(opened_rounds)))
        else:
            (opened,), (engine,) = opened_rounds, engines
            found = {0: engine.run(opened)}
    assert all(upload.targets.labels.device == FAR for own in found.values() for upload in own)
    return border.crossed + places.crossed


@pytest.mark.parametrize("name", KINDS)
def test_recorded_steps_leave_nothing_to_wait_for(name: str) -> None:
    engine = StackedEngine(networks()[0], clients(), FAR, kernels="graphs")
    assert work([far(name, engine)], [engine]) == []


@pytest.mark.parametrize("name", METHODS)
def test_otherwise_the_host_waits_once_a_labelling_if_images_are_mixed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0

    def count(plan: StepSchedule, mix: Tensor) -> list[list[list[int]]]:
        nonlocal counted
        counted += 1
        return [[[3] * plan.steps for _ in plan.epochs] for _ in mix]

    monkeypatch.setattr(StepSchedule, "_count", count)
    engine, method = StackedEngine(networks()[0], clients(), FAR), trained(name)
    assert work([far(name, engine)], [engine]) == []
    labellings = TRAINING.epochs if method.pseudo_labeler.renew == "epoch" else 1
    assert counted == (labellings if method.pseudo_labeler.mixes else 0)


@pytest.mark.parametrize("name", ["fedwca", "fedscal"])
def test_nor_do_trials_together(name: str) -> None:
    trials = StackedTrials(networks(2), [clients(), clients()], FAR, kernels="graphs")
    both = [engine for engine in trials.engines if isinstance(engine, StackedEngine)]
    opened_rounds = [far(name, engine, seed) for seed, engine in enumerate(both, 1)]
    assert work(opened_rounds, both, trials) == []


@pytest.mark.parametrize("batch_norm", ["pooled", "local", "recalibrated"])
def test_nor_does_any_policy_for_batchnorm(batch_norm: str) -> None:
    engine = StackedEngine(networks()[0], clients(), FAR, batch_norm=batch_norm, kernels="graphs")
    assert work([far("fedwca", engine, batch_norm=batch_norm)], [engine]) == []


def test_nor_do_residual_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    architecture = ShortResNet.model_validate({"weights": "none", "side": 32, "bottleneck": 8})
    own = clients(architecture.stored, (8, 16))
    network, twin, method = architecture.build(3, seed=1), architecture.build(3, seed=1), trained("fedwca")
    engine = StackedEngine(twin, own, FAR, kernels="graphs")
    loop = SequentialEngine(network, own, "cpu", 1)
    server, _ = run_round(0, init_server(loop), method, loop, TRAINING, Keys(0), DOMAINS[:2])
    opened = open_round(1, server, method, loop, TRAINING, Keys(0), DOMAINS[:2])
    moved = replace(server, rows=server.rows.to(FAR), source=server.source.to(FAR))
    assert work([replace(opened, engine=engine, server=moved)], [engine]) == []


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
    loop = SequentialEngine(LeNet(bottleneck=8).build(3, seed=1), clients(), "cpu", 1)
    method = replace(trained("fedwca"), pseudo_labeler=labeler)
    server, _ = run_round(0, init_server(loop), method, loop, TRAINING, Keys(0), DOMAINS)
    _, outcome = run_round(1, server, method, loop, TRAINING, Keys(0), DOMAINS)
    mixed = any(bool((upload.targets.mix > 0).any()) for upload in outcome.uploads.values())
    assert labeler.mixes == (name == "two_model")
    assert mixed <= labeler.mixes
