"""Steps recorded once and played again give the same models; a tape stands in for CUDA graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.engine.interface import Engine, TrialsInTurn
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine, StackedTrials
from fedwca.engine.stacked import engine as engines
from fedwca.engine.stacked.mini_batches import StepSchedule
from fedwca.engine.stacked.step_groups import StepGroup
from fedwca.engine.stacked.tuning import graphs
from fedwca.engine.stacked.tuning.graphs import CudaGraphs, RecordedSteps, Recorder
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.errors import UsageError
from fedwca.functional import augment as views
from tests.engine.federations import KINDS, Thin, clients, lenet, trained

from .tape import Tapes
from .test_trials import played

SIZES = (36, 36, 36, 9)
"""With batches of 8, three full steps of the same clients in an epoch."""
TRAINING = Training(epochs=2, lr=0.003, batch_size=8)


@pytest.fixture(autouse=True)
def tapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "CudaGraphs", Tapes)
    monkeypatch.setattr(graphs, "OFTEN", 3)
    # As on a GPU: `augment_by_rows` makes tensors whose shapes depend on random values.
    monkeypatch.setattr(views, "augment_by_rows", views.augment_by_selection)


def plainly(often: object) -> Callable[..., None]:
    """A stand-in for recording that runs each step as it is, still with a place for each mixed image."""
    return lambda kind, values, step: step(*values)


def tape_of(engine: Engine) -> Tapes:
    """What an engine's steps are recorded on."""
    assert isinstance(engine, StackedEngine)
    assert isinstance(engine.capture, RecordedSteps)
    assert isinstance(engine.capture.record, Tapes)
    return engine.capture.record


def after(trials: TrialsInTurn, name: str) -> list[torch.Tensor]:
    """Every trial's models after two rounds."""
    played(trials, trained(name), training=TRAINING)
    return [engine.bank for engine in trials.engines]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_method_is_recorded_and_played(name: str) -> None:
    stacked, unrecorded = (StackedEngine(lenet(), clients(sizes=SIZES), kernels="graphs") for _ in range(2))
    unrecorded.capture, start = plainly, stacked.bank.clone()
    (recorded_bank,), (plain_bank,) = after(TrialsInTurn([stacked]), name), after(TrialsInTurn([unrecorded]), name)
    assert float((recorded_bank - start).abs().max()) > 1e-3
    assert torch.equal(recorded_bank, plain_bank), "the same calls on the same values"
    record = tape_of(stacked)
    assert record.recorded >= 2, "steps of both rounds"
    assert record.played > record.recorded


def test_room_for_all_mixed_images_changes_nothing() -> None:
    client_images = clients(sizes=SIZES)
    loop, stacked = (
        SequentialEngine(lenet(), client_images, "cpu", 1),
        StackedEngine(lenet(), client_images, kernels="graphs"),
    )
    (loop_bank,), (stacked_bank,) = after(TrialsInTurn([loop]), "fedwca"), after(TrialsInTurn([stacked]), "fedwca")
    assert float((loop_bank - stacked_bank).abs().max()) <= 1e-9


def networks() -> list[Network]:
    return [Thin(bottleneck=16).build(3, seed=seed).double() for seed in (1, 2)]


def test_recorded_trials_together_equal_trials_alone() -> None:
    images_by_trial = [clients(sizes=SIZES), clients(sizes=(36, 36, 28, 9))]
    alone = TrialsInTurn(
        [
            StackedEngine(network, trial_images)
            for network, trial_images in zip(networks(), images_by_trial, strict=True)
        ]
    )
    together = StackedTrials(networks(), images_by_trial, kernels="graphs")
    for bank_alone, bank_together in zip(after(alone, "fedwca"), after(together, "fedwca"), strict=True):
        assert float((bank_alone - bank_together).abs().max()) <= 1e-9
    first, second = together.engines
    assert tape_of(first) is tape_of(second)
    assert tape_of(first).played


@pytest.mark.parametrize("kernels", ["eager", "graphs"])
def test_captured_steps_have_a_place_for_each_mixed_image(monkeypatch: pytest.MonkeyPatch, kernels: Kernels) -> None:
    counts: list[tuple[int, int]] = []
    original = StepSchedule.places

    def watched(plan: StepSchedule, epoch: int, step: int, span: StepGroup) -> int:
        counts.append((original(plan, epoch, step, span), span.images))
        return counts[-1][0]

    monkeypatch.setattr(StepSchedule, "places", watched)
    after(TrialsInTurn([StackedEngine(lenet(), clients(sizes=SIZES), kernels=kernels)]), "fedwca")
    assert all(slots == images if kernels == "graphs" else slots <= images for slots, images in counts)
    assert any(slots < images for slots, images in counts) == (kernels == "eager")


def test_a_rare_kind_of_step_is_not_recorded() -> None:
    tapes, seen = Tapes(), []
    recorder = Recorder(tapes, {"often": 3, "rare": 2})
    for number in range(3):
        for kind in ("often", "rare"):
            recorder.run(kind, (torch.tensor([number]),), lambda value, kind=kind: seen.append((kind, int(value))))  # type: ignore[misc]
    # The second step of a kind is recorded, which the tape does by running it; a replay appends nothing to a list.
    assert [value for kind, value in seen if kind == "rare"] == list(range(3))
    assert (tapes.recorded, tapes.played) == (1, 2)


def test_values_of_a_step_go_where_the_recording_reads_them() -> None:
    total = torch.zeros(1, dtype=torch.int64)
    recorder = Recorder(Tapes(), {"step": 6})
    for number in range(6):
        recorder.run("step", (torch.tensor([number]),), total.add_)
    assert int(total) == sum(range(6)), "each step once: recording does none"


class Refusing(Tapes):
    """Fails like a device whose values are read: in the watched step already, or only while recording."""

    def __init__(self, at_once: bool) -> None:
        super().__init__()
        self.at_once = at_once

    @contextmanager
    def watched(self) -> Iterator[None]:
        if self.at_once:
            raise RuntimeError("called a synchronizing operation\nat some place")
        yield

    def __call__(self, work: object) -> Callable[[], None]:
        raise RuntimeError("operation not permitted when stream is capturing\nat some place")


@pytest.mark.parametrize(("at_once", "why"), [(True, "called a synchronizing op"), (False, "operation not permitted")])
def test_what_cannot_be_recorded_runs_as_it_is_and_says_so_once(at_once: bool, why: str) -> None:
    total, record = torch.zeros(1, dtype=torch.int64), Refusing(at_once)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            recorder = Recorder(record, {"step": 5})
            for number in range(5):
                recorder.run("step", (torch.tensor([number]),), total.add_)
    assert int(total) == 3 * sum(range(5))
    assert [str(warning.message).partition(": ")[2].startswith(why) for warning in caught] == [True]
    assert record.refused


class Full(Tapes):
    """A device without memory: for the step itself, or only for its recording."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        yield

    def __call__(self, work: object) -> Callable[[], None]:
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_step_without_memory_is_not_one_that_cannot_be_recorded() -> None:
    record, calls = Full(), []

    def step(value: torch.Tensor) -> None:
        calls.append(int(value))
        if value < 0:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        Recorder(record, {"step": 5}).run("step", (torch.tensor([-1]),), step)
    assert (calls, record.refused, record.freed) == ([-1], False, False)
    recorder = Recorder(record, {"step": 5})
    recorder.run("step", (torch.tensor([1]),), step)
    with pytest.warns(UserWarning, match="cannot be recorded as CUDA graphs, so they run as they are: CUDA out of mem"):
        recorder.run("step", (torch.tensor([2]),), step)
    assert (calls, record.refused, record.freed) == ([-1, 1, 2], True, True)


def test_steps_are_watched_before_they_are_recorded() -> None:
    tapes = Tapes()
    recorder = Recorder(tapes, {"often": 3, "rare": 1})
    for kind in ("often", "rare", "often"):
        recorder.run(kind, (torch.tensor([1]),), lambda value: None)
    assert tapes.watching == 1


def test_a_cpu_has_no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "CudaGraphs", CudaGraphs)
    with pytest.raises(UsageError, match="kernels graphs needs a CUDA device, not cpu; take eager"):
        StackedEngine(lenet(), clients(), kernels="graphs")
